"""The main job: from a PodProbeMarker to marked pods, both ways, for every kind of probe; on a cluster and on the playground."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
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
BY_NUMBER, BY_NAME = "e2e.example.com/web-by-number", "e2e.example.com/web-by-name"
GATE = "e2e.example.com/door"
STEADY = "e2e.example.com/steady"
QUEUE = "e2e.example.com/queue"


def write(file: str, text: str) -> str:
    """A script that replaces a file at once, so that no probe finds it empty."""
    return f"echo '{text}' > new.{file} && mv new.{file} {file}"


OBJECTS = load_table(Path(__file__).parents[1] / "data" / "main-job.yaml", {})


def probe(name: str, action: Json, *policies: Json, kind: str | None = None) -> Json:
    how = {"periodSeconds": 1, "timeoutSeconds": 20, **action}
    made: Json = {"name": name, "containerName": "server", "probe": how}
    return (
        made
        | ({"podConditionType": kind} if kind else {})
        | ({"markerPolicy": list(policies)} if policies else {})
    )


def policy(state: str, **labels: str) -> Json:
    return {"state": state, "labels": labels}


def spec(*probes: Json) -> Json:
    return {"selector": {"matchLabels": {"probed": "yes"}}, "probes": list(probes)}


def exec_action(script: str) -> Json:
    return {"exec": {"command": ["sh", "-c", script]}}


CONDITION_TYPES = (IDLE, BY_NUMBER, BY_NAME, GATE)


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def three_pods(job: JobNamespace) -> AsyncIterator[None]:
    """Three pods that all probes find in order."""
    await job.put_marker("game", OBJECTS["marker"])
    await job.api.create(f"/apis/apps/v1/namespaces/{job.name}/replicasets", OBJECTS["replica-set"])
    await job.until(
        "three pods with every condition True",
        lambda pods: (
            len(pods) == 3
            and all(
                status_of(pod, each) == "True" for pod in pods.values() for each in CONDITION_TYPES
            )
        ),
    )
    yield
    await job.api.delete(f"/apis/apps/v1/namespaces/{job.name}/replicasets/game")


@pytest.fixture
def pod(job: JobNamespace) -> str:
    return min(job.pods)


async def shows(job: JobNamespace, pod: str, **wanted: str | None) -> Json:
    """Returns the pod once it has these labels; None for none."""
    await job.until(
        f"{pod} has the labels {wanted}",
        lambda pods: all(labels(pods[pod]).get(key) == value for key, value in wanted.items()),
    )
    return job.pods[pod]


async def test_first_results_are_written_to_every_pod(job: JobNamespace) -> None:
    def marked(pods: dict[str, Json]) -> bool:
        wanted = {"idle": "yes", "web": "up", "door": "open", "role": "backup"}
        return all(
            wanted.items() <= labels(each).items() and annotations(each).get(COST) == "-10"
            for each in pods.values()
        )

    await job.until("labels and annotations of Succeeded", marked)
    for each in job.pods.values():
        idle = condition(each, IDLE)
        assert idle["message"].strip() == "idle"
        assert idle["lastProbeTime"]
        assert idle["lastTransitionTime"]
        assert "reason" not in idle
        assert "example.com/web" not in annotations(each)


async def test_a3_constant_results_are_written_once(job: JobNamespace) -> None:
    """A command counts its runs, and fails after ten: until then it has nothing new to report."""
    await job.until(
        "nothing else is to be written",
        lambda pods: all(
            status_of(each, "Ready") == "True"
            and {"door": "open", "role": "backup"}.items() <= labels(each).items()
            for each in pods.values()
        ),
    )
    reports = job.api.node_pod_probes.history
    before = {key: len(versions) for key, versions in reports.items()}
    action = exec_action("echo >> runs; test $(wc -l < runs) -le 10")
    await job.put_marker(
        "steady", spec(probe("steady", action, policy("Succeeded", steady="yes"), kind=STEADY))
    )
    await job.until(
        "every command has failed",
        lambda pods: all(status_of(each, STEADY) == "False" for each in pods.values()),
    )
    for key, versions in reports.items():
        written = len(versions) - before.get(key, 0)
        assert written < 10, "a spec, and the first and the last result of each pod"
    await job.remove_marker("steady")
    for name in job.pods:
        history = job.api.pods.history[NamespacedName(job.name, name)]
        assert len([each for each in history if "steady" in labels(each)]) == 1


async def test_an_exec_probe_flips_both_ways_with_events(job: JobNamespace, pod: str) -> None:
    others = set(job.pods) - {pod}
    await job.exec(pod, "rm idle")
    failed = await shows(job, pod, idle="no")
    assert condition(failed, IDLE)["status"] == "False"
    assert condition(failed, IDLE)["message"].strip() == "busy"
    assert annotations(failed)[COST] == "10"
    assert all(labels(job.pods[each])["idle"] == "yes" for each in others)

    await job.exec(pod, write("idle", "idle"))
    succeeded = await shows(job, pod, idle="yes")
    assert annotations(succeeded)[COST] == "-10"
    assert condition(succeeded, IDLE)["status"] == "True"
    for reason, message in (("KruiseProbeFailed", "busy"), ("KruiseProbeSucceeded", "idle")):
        await job.api.events.wait(
            reason,
            lambda reason=reason, message=message: any(
                each.get("reason") == reason
                and each.get("message", "").strip() == f"game#idle: {message}"
                and each["type"] == "Normal"
                and each["involvedObject"].get("uid") == failed["metadata"]["uid"]
                and each["source"].get("component") == "kruise-daemon-podprobe"
                and each["source"].get("host") == failed["spec"]["nodeName"]
                for each in job.api.events.all()
            ),
        )


async def test_a_message_that_changes_while_the_state_stays_reaches_the_condition(
    job: JobNamespace, pod: str
) -> None:
    before = condition(job.pods[pod], IDLE)
    await job.exec(pod, write("idle", "idle, 3 players waiting"))
    await job.until(
        "the new message",
        lambda pods: "3 players" in condition(pods[pod], IDLE).get("message", ""),
    )
    after = condition(job.pods[pod], IDLE)
    assert after["status"] == "True"
    assert after["lastTransitionTime"] == before["lastTransitionTime"]
    await job.exec(pod, write("idle", "idle"))


async def test_values_from_a_message_follow_it(job: JobNamespace, pod: str) -> None:
    async def follows(role: str, text: str | None) -> None:
        await job.until(
            f"label role={role}",
            lambda pods: (
                labels(pods[pod]).get("role") == role
                and annotations(pods[pod]).get("example.com/role") == text
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
    await job.exec(pod, write("role", "role=primary"))
    await follows("primary", "role=primary")
    await job.exec(pod, write("role", "starting"))
    await follows("none", "starting")
    await reports("ValueInvalid")
    await job.exec(pod, "rm role")
    await follows("failed", None)
    await job.exec(pod, write("role", "role=backup"))
    await follows("backup", "role=backup")
    await reports("AsExpected")


async def test_a_value_at_the_end_of_a_large_page_is_marked_and_decides(
    job: JobNamespace, pod: str
) -> None:
    """Of httpGet, and of a command that succeeds with 3."""
    metric = {"extract": {"metric": {"name": "queue"}, "step": 5}, "successWhen": {"max": 10}}
    pattern = {"extract": {"regex": "^queue (.*)"}, "successWhen": {"exitCodes": [3]}}
    kept = {"state": "Succeeded", "annotations": {"example.com/queue": "none"}}
    page = probe("page", {"httpGet": {"path": "/metrics", "port": 8080}}, kind=QUEUE)
    page["markerPolicy"] = [{**kept, "fromMessage": [{"annotation": "example.com/queue"}]}]
    text = probe("text", exec_action("cat www/metrics; exit 3"))
    text["markerPolicy"] = [{"state": "Succeeded", "fromMessage": [{"label": "queue"}]}]

    async def serves(queue: str) -> None:
        others = "seq 10000 | sed 's/.*/other{n=\"&\"} 1/'"
        await job.exec(pod, f"({others}; echo queue {queue}) > new && mv new www/metrics")

    await serves("7.5")
    await job.put_marker("queue", spec({**page, **metric}, {**text, **pattern}))
    await shows(job, pod, queue="7.5")
    await job.until("the page", lambda pods: status_of(pods[pod], QUEUE) == "True")
    succeeded = job.pods[pod]
    assert annotations(succeeded)["example.com/queue"] == "5"
    assert condition(succeeded, QUEUE)["message"] == "5"
    await serves("12")
    await shows(job, pod, queue="12")
    await job.until("the page", lambda pods: status_of(pods[pod], QUEUE) == "False")
    failed = condition(job.pods[pod], QUEUE)
    assert failed["message"] == "queue 10 in steps of 5 > max 10"
    await job.remove_marker("queue")


async def test_new_policy_is_not_applied_to_the_result_of_an_old_command(job: JobNamespace) -> None:
    async def put(script: str, succeeded: str) -> None:
        policies = (policy("Succeeded", edited=succeeded), policy("Failed", edited="failed"))
        await job.put_marker("edited", spec(probe("edited", exec_action(script), *policies)))

    async def every_pod_shows(value: str) -> None:
        await job.until(
            f"label edited={value} on every pod",
            lambda pods: all(labels(each).get("edited") == value for each in pods.values()),
        )

    await put("true", succeeded="old")
    await every_pod_shows("old")
    await put("sleep 2; false", succeeded="new")
    await every_pod_shows("failed")
    await job.remove_marker("edited")
    await put("sleep 2; false", succeeded="new")  # nor to that of a deleted marker
    await every_pod_shows("failed")
    await job.remove_marker("edited")
    seen = [
        labels(each).get("edited")
        for name in job.pods
        for each in job.api.pods.history[NamespacedName(job.name, name)]
    ]
    assert "new" not in seen


async def test_a_policy_for_unknown_is_applied_to_a_probe_that_cannot_run(
    job: JobNamespace,
) -> None:
    how = {"exec": {"command": ["/no/such/program"]}}
    await job.put_marker("absent", spec(probe("absent", how, policy("Unknown", absent="unknown"))))
    await job.until(
        "label absent=unknown on every pod",
        lambda pods: all(labels(each).get("absent") == "unknown" for each in pods.values()),
    )
    await job.remove_marker("absent")
    await job.until(
        "label absent is gone",
        lambda pods: not any("absent" in labels(each) for each in pods.values()),
    )


async def test_http_probes_by_number_and_by_name_flip_and_a_single_policy_removes_its_keys(
    job: JobNamespace, pod: str
) -> None:
    await job.exec(pod, "mv www/healthz www/hidden")
    await job.until(
        "web probes False, label web gone, annotation of Failed there",
        lambda pods: (
            status_of(pods[pod], BY_NUMBER) == status_of(pods[pod], BY_NAME) == "False"
            and "web" not in labels(pods[pod])
            and annotations(pods[pod]).get("example.com/web") == "down"
        ),
    )
    message = condition(job.pods[pod], BY_NAME)["message"]
    assert message.startswith("HTTP probe failed with statuscode: 404: ")

    await job.exec(pod, "mv www/hidden www/healthz")
    await job.until(
        "web probes True, label web back, annotation gone",
        lambda pods: (
            status_of(pods[pod], BY_NUMBER) == status_of(pods[pod], BY_NAME) == "True"
            and labels(pods[pod]).get("web") == "up"
            and "example.com/web" not in annotations(pods[pod])
        ),
    )


async def test_a_readiness_gate_follows_a_tcp_probe(job: JobNamespace, pod: str) -> None:
    async def is_open(status: str, label: str | None) -> None:
        await job.until(
            f"gate and pod {status}, label {label}",
            lambda pods: (
                status_of(pods[pod], GATE) == status_of(pods[pod], "Ready") == status
                and labels(pods[pod]).get("door") == label
            ),
        )

    await is_open("True", "open")
    await job.exec(pod, "rm open")
    await is_open("False", None)
    assert "connection refused" in condition(job.pods[pod], GATE)["message"]
    await job.exec(pod, "touch open")
    await is_open("True", "open")


def entries_of(job: JobNamespace, uid: str) -> list[Json]:
    return [
        entry
        for each in job.api.node_pod_probes.all()
        for entry in each["spec"].get("podProbes") or ()
        if entry["uid"] == uid
    ]


@pytest.mark.parametrize("of", ["pod", "marker"])
async def test_a_paused_probe_keeps_its_marks_until_the_next_result(
    job: JobNamespace, pod: str, of: str
) -> None:
    path = pod_path(pod, job.name) if of == "pod" else marker_path("game", job.name)
    uid = job.pods[pod]["metadata"]["uid"]
    await job.api.merge(path, {"metadata": {"annotations": {PAUSED: "true"}}})
    await job.until(
        "paused", lambda pods: condition(pods[pod], IDLE).get("reason") == "ProbePaused"
    )
    await job.api.node_pod_probes.wait(
        "neither entry nor result of the pod",
        lambda: (
            not entries_of(job, uid)
            and not any(
                (uid, "game#idle") in results_of(each) for each in job.api.node_pod_probes.all()
            )
        ),
    )
    await job.exec(pod, "rm idle")
    paused = job.pods[pod]
    assert status_of(paused, IDLE) == status_of(paused, "Ready") == "True"
    assert labels(paused)["idle"] == "yes"

    await job.api.merge(path, {"metadata": {"annotations": {PAUSED: None}}})
    resumed = await shows(job, pod, idle="no")
    assert "reason" not in condition(resumed, IDLE)
    await job.exec(pod, write("idle", "idle"))
    await shows(job, pod, idle="yes")


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
    job: JobNamespace, pod: str
) -> None:
    await job.api.merge(pod_path(pod, job.name), {"metadata": {"labels": {"probed": "no"}}})
    await job.until("unmarked", lambda pods: "idle" not in labels(pods[pod]))
    assert condition(job.pods[pod], IDLE) == {}
    await job.api.merge(pod_path(pod, job.name), {"metadata": {"labels": {"probed": "yes"}}})
    await shows(job, pod, idle="yes")


async def test_a_container_that_was_restarted_is_probed_anew(job: JobNamespace, pod: str) -> None:
    await job.exec(pod, write("idle", "before the restart"))
    await job.until(
        "the old message",
        lambda pods: condition(pods[pod], IDLE).get("message", "").strip() == "before the restart",
    )
    await job.exec(pod, "touch crash")
    await job.until(
        "the message of the new container",
        lambda pods: (
            pods[pod]["status"]["containerStatuses"][0]["restartCount"] == 1
            and condition(pods[pod], IDLE).get("message", "").strip() == "idle"
            and status_of(pods[pod], "Ready") == "True"
        ),
    )


async def test_a_node_pod_probe_emptied_by_hand_is_repaired(job: JobNamespace, pod: str) -> None:
    uid, node = (job.pods[pod]["metadata"]["uid"], job.pods[pod]["spec"]["nodeName"])
    await job.api.merge(node_pod_probe_path(node), {"spec": {"podProbes": []}})
    await job.api.node_pod_probes.wait("the entry again", lambda: bool(entries_of(job, uid)))


async def test_a_marker_that_breaks_the_rules_is_refused_with_the_field(job: JobNamespace) -> None:
    two: dict[str, Any] = {**exec_action("true"), "tcpSocket": {"port": 1}}
    with pytest.raises(Invalid, match=r"spec\.probes\[0\]"):
        await job.put_marker("two", spec(probe("two", two, kind="e2e.example.com/two")))


async def test_deleting_the_marker_removes_its_marks_and_leaves_the_gate(job: JobNamespace) -> None:
    await job.until(
        "all Ready", lambda pods: all(status_of(each, "Ready") == "True" for each in pods.values())
    )
    await job.remove_marker("game")
    await job.until(
        "no mark left",
        lambda pods: all(
            not {"idle", "web", "door", "role"} & labels(each).keys()
            and not {COST, "example.com/role"} & annotations(each).keys()
            and all(status_of(each, kind) is None for kind in CONDITION_TYPES if kind != GATE)
            for each in pods.values()
        ),
    )
    for each in job.pods.values():
        gate = condition(each, GATE)
        assert (gate["status"], gate["reason"]) == ("True", "ProbeRemoved")
        assert status_of(each, "Ready") == "True"
        assert not entries_of(job, each["metadata"]["uid"])
