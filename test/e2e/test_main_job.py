"""The main job: from a PodProbeMarker to marked pods, both ways, for every kind of probe; on a cluster and on the playground."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support import hollow
from support.tables import load_table
from support.target import (
    JobNamespace,
    annotations,
    condition,
    labels,
    marker_path,
    node_pod_probe_path,
    pod_path,
    results_of,
    status_of,
)
from support.wire import Json

from kruise_probe.api.errors import Invalid
from kruise_probe.api.meta import NamespacedName

pytestmark = pytest.mark.asyncio(loop_scope="module")

COST = "controller.kubernetes.io/pod-deletion-cost"
PAUSED = "kruise-probe.io/paused"
IDLE = "e2e.example.com/idle"
BY_NUMBER = "e2e.example.com/web-by-number"
BY_NAME = "e2e.example.com/web-by-name"
GATE = "e2e.example.com/door"
STEADY = "e2e.example.com/steady"
QUEUE = "e2e.example.com/queue"
WEB_ANNOTATION = "example.com/web"
ROLE_ANNOTATION = "example.com/role"
QUEUE_ANNOTATION = "example.com/queue"
WITHOUT_GATE = (IDLE, BY_NUMBER, BY_NAME)
CONDITION_TYPES = (*WITHOUT_GATE, GATE)
OBJECTS = load_table(Path(__file__).parents[1] / "data" / "main-job.yaml", {})


def probe(name: str, action: Json, *policies: Json, kind: str | None = None, **more: Any) -> Json:
    return hollow.probe(
        name,
        containerName="server",
        probe={"periodSeconds": 1, "timeoutSeconds": 20, **action},
        podConditionType=kind,
        markerPolicy=policies or None,
        **more,
    )


def policy(state: str, **labels: str) -> Json:
    return {"state": state, "labels": labels}


def exec_action(script: str) -> Json:
    return {"exec": {"command": ["sh", "-c", script]}}


async def put_marker(job: JobNamespace, name: str, *probes: Json) -> None:
    """A second marker of the three pods."""
    selector = {"matchLabels": {"probed": "yes"}}
    await job.put_marker(name, {"selector": selector, "probes": probes})


def has_labels(pod: Json, **wanted: str | None) -> bool:
    """None for a label that is absent."""
    return all(labels(pod).get(key) == value for key, value in wanted.items())


def has_ready(pod: Json) -> bool:
    return status_of(pod, "Ready") == "True"


def idle_message(pod: Json) -> str:
    message: str = condition(pod, IDLE).get("message", "")
    return message.strip()


def has_entry(job: JobNamespace, uid: str) -> bool:
    """Whether a NodePodProbe lists probes of the pod."""
    for report in job.api.node_pod_probes.all():
        entries = report["spec"].get("podProbes") or ()
        if any(entry["uid"] == uid for entry in entries):
            return True
    return False


def versions_of(job: JobNamespace, pod: str) -> list[Json]:
    return job.api.pods.history[NamespacedName(job.name, pod)]


async def until_all(job: JobNamespace, what: str, holds: Callable[[Json], bool]) -> None:
    await job.until(f"every pod: {what}", lambda pods: all(map(holds, pods.values())))


async def until_all_labels(job: JobNamespace, **wanted: str | None) -> None:
    """None for a label that is absent."""
    await until_all(
        job,
        f"labels {wanted}",
        lambda pod: has_labels(pod, **wanted),
    )


class GamePod:
    """One of the three pods."""

    def __init__(self, job: JobNamespace) -> None:
        self._job = job
        self.name = min(job.pods)
        self.path = pod_path(self.name, job.name)

    @property
    def newest(self) -> Json:
        return self._job.pods[self.name]

    async def exec(self, script: str) -> None:
        await self._job.exec(self.name, script)

    async def write(self, file: str, text: str) -> None:
        """Replaces the file at once, so that no probe finds it empty."""
        await self.exec(f"echo '{text}' > new.{file} && mv new.{file} {file}")

    async def until(self, what: str, holds: Callable[[Json], bool]) -> None:
        await self._job.until(f"{self.name}: {what}", lambda pods: holds(pods[self.name]))

    async def until_labels(self, **wanted: str | None) -> Json:
        """Returns the pod once it has these labels; None for none."""
        await self.until(f"labels {wanted}", lambda pod: has_labels(pod, **wanted))
        return self.newest


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def three_pods(job: JobNamespace) -> AsyncIterator[None]:
    """Three pods that all probes find in order."""
    replica_sets = f"/apis/apps/v1/namespaces/{job.name}/replicasets"

    def succeeds(pod: Json) -> bool:
        return all(status_of(pod, kind) == "True" for kind in CONDITION_TYPES)

    await job.put_marker("game", OBJECTS["marker"])
    await job.api.create(replica_sets, OBJECTS["replica-set"])
    await job.until(
        "three pods with every condition True",
        lambda pods: len(pods) == 3 and all(map(succeeds, pods.values())),
    )
    yield
    await job.api.delete(f"{replica_sets}/game")


@pytest.fixture
def pod(job: JobNamespace) -> GamePod:
    return GamePod(job)


async def test_first_results_are_written_to_every_pod(job: JobNamespace) -> None:
    def is_marked(pod: Json) -> bool:
        marked = has_labels(
            pod,
            idle="yes",
            web="up",
            door="open",
            role="backup",
        )
        return marked and annotations(pod).get(COST) == "-10"

    await until_all(job, "labels and annotations of Succeeded", is_marked)
    for pod in job.pods.values():
        idle = condition(pod, IDLE)
        assert idle["message"].strip() == "idle"
        assert idle["lastProbeTime"]
        assert idle["lastTransitionTime"]
        assert "reason" not in idle
        assert WEB_ANNOTATION not in annotations(pod)


async def test_a3_constant_results_are_written_once(job: JobNamespace) -> None:
    """A command counts its runs, and fails after ten: until then it has nothing new to report."""
    await until_all(
        job,
        "nothing else is to be written",
        lambda pod: has_ready(pod) and has_labels(pod, door="open", role="backup"),
    )
    reports = job.api.node_pod_probes.history
    before = {key: len(versions) for key, versions in reports.items()}
    action = exec_action("echo >> runs; test $(wc -l < runs) -le 10")
    steady = probe(
        "steady",
        action,
        policy("Succeeded", steady="yes"),
        kind=STEADY,
    )
    await put_marker(job, "steady", steady)
    await until_all(
        job,
        "the command has failed",
        lambda pod: status_of(pod, STEADY) == "False",
    )
    for key, versions in reports.items():
        written = len(versions) - before.get(key, 0)
        assert written < 10, "a spec, and the first and the last result of each pod"
    await job.remove_marker("steady")
    for name in job.pods:
        with_label = [version for version in versions_of(job, name) if "steady" in labels(version)]
        assert len(with_label) == 1


async def test_an_exec_probe_flips_both_ways_with_events(job: JobNamespace, pod: GamePod) -> None:
    await pod.exec("rm idle")
    failed = await pod.until_labels(idle="no")
    assert status_of(failed, IDLE) == "False"
    assert idle_message(failed) == "busy"
    assert annotations(failed)[COST] == "10"
    assert sorted(labels(one)["idle"] for one in job.pods.values()) == ["no", "yes", "yes"]

    await pod.write("idle", "idle")
    succeeded = await pod.until_labels(idle="yes")
    assert annotations(succeeded)[COST] == "-10"
    assert status_of(succeeded, IDLE) == "True"

    def fields_of(event: Json) -> Json:
        return {
            "reason": event.get("reason"),
            "message": event.get("message", "").strip(),
            "type": event.get("type"),
            "uid": event["involvedObject"].get("uid"),
            "source": event.get("source"),
        }

    both = {
        "type": "Normal",
        "uid": failed["metadata"]["uid"],
        "source": {"component": "kruise-daemon-podprobe", "host": failed["spec"]["nodeName"]},
    }
    of_failed = {"reason": "KruiseProbeFailed", "message": "game#idle: busy", **both}
    of_succeeded = {"reason": "KruiseProbeSucceeded", "message": "game#idle: idle", **both}

    def has_both() -> bool:
        events = [fields_of(event) for event in job.api.events.all()]
        return of_failed in events and of_succeeded in events

    await job.api.events.wait("an event of each state", has_both)


async def test_a_message_that_changes_while_the_state_stays_reaches_the_condition(
    pod: GamePod,
) -> None:
    before = condition(pod.newest, IDLE)
    await pod.write("idle", "idle, 3 players waiting")
    await pod.until("the new message", lambda newest: "3 players" in idle_message(newest))
    after = condition(pod.newest, IDLE)
    assert after["status"] == "True"
    assert after["lastTransitionTime"] == before["lastTransitionTime"]
    await pod.write("idle", "idle")


async def test_values_from_a_message_follow_it(job: JobNamespace, pod: GamePod) -> None:
    async def follows(role: str, text: str | None) -> None:
        await pod.until(
            f"label role={role}",
            lambda newest: (
                has_labels(newest, role=role) and annotations(newest).get(ROLE_ANNOTATION) == text
            ),
        )

    async def reports(reason: str) -> None:
        await job.api.markers.until(
            f"Degraded is {reason}",
            lambda marker: condition(marker, "Degraded").get("reason") == reason,
            name="game",
            namespace=job.name,
        )

    await follows("backup", "role=backup")
    await pod.write("role", "role=primary")
    await follows("primary", "role=primary")
    await pod.write("role", "starting")
    await follows("none", "starting")
    await reports("ValueInvalid")
    await pod.exec("rm role")
    await follows("failed", None)
    await pod.write("role", "role=backup")
    await follows("backup", "role=backup")
    await reports("AsExpected")


async def test_a_value_at_the_end_of_a_large_page_is_marked_and_decides(
    job: JobNamespace, pod: GamePod
) -> None:
    """Of httpGet, and of a command that succeeds with 3."""
    page = probe(
        "page",
        {"httpGet": {"path": "/metrics", "port": 8080}},
        {
            "state": "Succeeded",
            "annotations": {QUEUE_ANNOTATION: "none"},
            "fromMessage": [{"annotation": QUEUE_ANNOTATION}],
        },
        kind=QUEUE,
        extract={
            "metric": {"name": "queue"},
            "step": 5,
        },
        successWhen={"max": 10},
    )
    text = probe(
        "text",
        exec_action("cat www/metrics; exit 3"),
        {
            "state": "Succeeded",
            "fromMessage": [{"label": "queue"}],
        },
        extract={"regex": "^queue (.*)"},
        successWhen={"exitCodes": [3]},
    )

    async def serve(queue: str) -> None:
        others = "seq 10000 | sed 's/.*/other{n=\"&\"} 1/'"
        await pod.exec(f"({others}; echo queue {queue}) > new && mv new www/metrics")

    async def page_is(status: str) -> Json:
        await pod.until(f"the page is {status}", lambda one: status_of(one, QUEUE) == status)
        return condition(pod.newest, QUEUE)

    await serve("7.5")
    await put_marker(job, "queue", page, text)
    await pod.until_labels(queue="7.5")
    assert (await page_is("True"))["message"] == "5"
    assert annotations(pod.newest)[QUEUE_ANNOTATION] == "5"
    await serve("12")
    await pod.until_labels(queue="12")
    assert (await page_is("False"))["message"] == "queue 10 in steps of 5 > max 10"
    await job.remove_marker("queue")


async def test_new_policy_is_not_applied_to_the_result_of_an_old_command(job: JobNamespace) -> None:
    async def put(script: str, succeeded: str) -> None:
        policies = (policy("Succeeded", edited=succeeded), policy("Failed", edited="failed"))
        await put_marker(
            job,
            "edited",
            probe(
                "edited",
                exec_action(script),
                *policies,
            ),
        )

    await put("true", succeeded="old")
    await until_all_labels(job, edited="old")
    await put("sleep 2; false", succeeded="new")
    await until_all_labels(job, edited="failed")
    await job.remove_marker("edited")
    await put("sleep 2; false", succeeded="new")  # nor to that of a deleted marker
    await until_all_labels(job, edited="failed")
    await job.remove_marker("edited")
    for name in job.pods:
        seen = [labels(version).get("edited") for version in versions_of(job, name)]
        assert "new" not in seen


async def test_a_policy_for_unknown_is_applied_to_a_probe_that_cannot_run(
    job: JobNamespace,
) -> None:
    impossible = {"exec": {"command": ["/no/such/program"]}}
    absent = probe(
        "absent",
        impossible,
        policy("Unknown", absent="unknown"),
    )
    await put_marker(job, "absent", absent)
    await until_all_labels(job, absent="unknown")
    await job.remove_marker("absent")
    await until_all_labels(job, absent=None)


async def test_http_probes_by_number_and_by_name_flip_and_a_single_policy_removes_its_keys(
    pod: GamePod,
) -> None:
    async def web_is(status: str, *, label: str | None, annotation: str | None) -> None:
        await pod.until(
            f"web probes {status}, label {label}, annotation {annotation}",
            lambda newest: (
                status_of(newest, BY_NUMBER) == status_of(newest, BY_NAME) == status
                and has_labels(newest, web=label)
                and annotations(newest).get(WEB_ANNOTATION) == annotation
            ),
        )

    await pod.exec("mv www/healthz www/hidden")
    await web_is("False", label=None, annotation="down")
    message = condition(pod.newest, BY_NAME)["message"]
    assert message.startswith("HTTP probe failed with statuscode: 404: ")

    await pod.exec("mv www/hidden www/healthz")
    await web_is("True", label="up", annotation=None)


async def test_a_readiness_gate_follows_a_tcp_probe(pod: GamePod) -> None:
    async def is_open(status: str, label: str | None) -> None:
        await pod.until(
            f"gate and pod {status}, label {label}",
            lambda newest: (
                status_of(newest, GATE) == status_of(newest, "Ready") == status
                and has_labels(newest, door=label)
            ),
        )

    await is_open("True", "open")
    await pod.exec("rm open")
    await is_open("False", None)
    assert "connection refused" in condition(pod.newest, GATE)["message"]
    await pod.exec("touch open")
    await is_open("True", "open")


@pytest.mark.parametrize("of", ["pod", "marker"])
async def test_a_paused_probe_keeps_its_marks_until_the_next_result(
    job: JobNamespace, pod: GamePod, of: str
) -> None:
    path = pod.path if of == "pod" else marker_path("game", job.name)
    uid = pod.newest["metadata"]["uid"]
    reports = job.api.node_pod_probes

    def is_reported() -> bool:
        return any((uid, "game#idle") in results_of(report) for report in reports.all())

    await job.api.merge(path, {"metadata": {"annotations": {PAUSED: "true"}}})
    await pod.until(
        "is paused", lambda newest: condition(newest, IDLE).get("reason") == "ProbePaused"
    )
    await reports.wait(
        "neither entry nor result of the pod",
        lambda: not has_entry(job, uid) and not is_reported(),
    )
    await pod.exec("rm idle")
    paused = pod.newest
    assert status_of(paused, IDLE) == "True"
    assert has_ready(paused)
    assert labels(paused)["idle"] == "yes"

    await job.api.merge(path, {"metadata": {"annotations": {PAUSED: None}}})
    resumed = await pod.until_labels(idle="no")
    assert "reason" not in condition(resumed, IDLE)
    await pod.write("idle", "idle")
    await pod.until_labels(idle="yes")


async def test_the_marker_reports_what_it_observes(job: JobNamespace) -> None:
    await job.api.markers.until(
        "observedGeneration and matchedPods",
        lambda marker: (
            marker.get("status", {}).get("matchedPods") == 3
            and marker["status"]["observedGeneration"] == marker["metadata"]["generation"]
        ),
        name="game",
        namespace=job.name,
    )


async def test_a_pod_that_is_no_longer_selected_loses_its_marks(
    job: JobNamespace, pod: GamePod
) -> None:
    await job.api.merge(pod.path, {"metadata": {"labels": {"probed": "no"}}})
    await pod.until_labels(idle=None)
    assert condition(pod.newest, IDLE) == {}
    await job.api.merge(pod.path, {"metadata": {"labels": {"probed": "yes"}}})
    await pod.until_labels(idle="yes")


async def test_a_container_that_was_restarted_is_probed_anew(pod: GamePod) -> None:
    await pod.write("idle", "before the restart")
    await pod.until("the old message", lambda newest: idle_message(newest) == "before the restart")
    await pod.exec("touch crash")
    await pod.until(
        "the message of the new container",
        lambda newest: (
            newest["status"]["containerStatuses"][0]["restartCount"] == 1
            and idle_message(newest) == "idle"
            and has_ready(newest)
        ),
    )


async def test_a_node_pod_probe_emptied_by_hand_is_repaired(
    job: JobNamespace, pod: GamePod
) -> None:
    uid = pod.newest["metadata"]["uid"]
    path = node_pod_probe_path(pod.newest["spec"]["nodeName"])
    await job.api.merge(path, {"spec": {"podProbes": []}})
    await job.api.node_pod_probes.wait("the entry again", lambda: has_entry(job, uid))


async def test_a_marker_that_breaks_the_rules_is_refused_with_the_field(job: JobNamespace) -> None:
    two = {
        **exec_action("true"),
        "tcpSocket": {"port": 1},
    }
    with pytest.raises(Invalid, match=r"spec\.probes\[0\]"):
        await put_marker(
            job,
            "two",
            probe("two", two, kind="e2e.example.com/two"),
        )


async def test_deleting_the_marker_removes_its_marks_and_leaves_the_gate(job: JobNamespace) -> None:
    def is_unmarked(pod: Json) -> bool:
        return (
            not {"idle", "web", "door", "role"} & labels(pod).keys()
            and not {COST, ROLE_ANNOTATION} & annotations(pod).keys()
            and all(status_of(pod, kind) is None for kind in WITHOUT_GATE)
        )

    await until_all(job, "Ready", has_ready)
    await job.remove_marker("game")
    await until_all(job, "no mark", is_unmarked)
    for pod in job.pods.values():
        gate = condition(pod, GATE)
        assert (gate["status"], gate["reason"]) == ("True", "ProbeRemoved")
        assert has_ready(pod)
        assert not has_entry(job, pod["metadata"]["uid"])
