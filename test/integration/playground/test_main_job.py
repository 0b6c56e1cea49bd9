"""From a PodProbeMarker to a marked pod: the real manager and the real daemon, over real HTTP, gRPC and sockets."""

import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from aiohttp import web
from support.files import write_at_once
from support.playground import PlaygroundNamespace
from support.target import annotations, condition, labels, node_pod_probe_path, results_of

from kruise_probe.api.errors import Invalid

Json = dict[str, Any]

KIND = "example.com/checked"
EXEC = {
    "exec": {"command": ["sh", "-c", "cat state; grep -q good state"]},
    "timeoutSeconds": 10,  # the runtime is in this process, which may stall for a second
}

WITHOUT_RESULT = {"exec": {"command": ["false"]}, "failureThreshold": 3600}


def probe(how: Json, *policies: Json, kind: str | None = KIND, name: str = "checked") -> Json:
    wanted: Json = {"name": name, "containerName": "main", "probe": how}
    if kind:
        wanted["podConditionType"] = kind
    if policies:
        wanted["markerPolicy"] = list(policies)
    return wanted


def policy(state: str, *, labels: Json | None = None, annotations: Json | None = None) -> Json:
    return {"state": state, "labels": labels or {}, "annotations": annotations or {}}


BOTH = (
    policy("Succeeded", labels={"state": "good"}, annotations={"cost": "-1"}),
    policy("Failed", labels={"state": "bad"}, annotations={"cost": "1", "look": "here"}),
)


def is_status(status: str, kind: str = KIND) -> Callable[[Json], bool]:
    return lambda pod: condition(pod, kind).get("status") == status


@contextmanager
def listening(ip: str, port: int) -> Iterator[None]:
    with socket.create_server((ip, port)):
        yield


@asynccontextmanager
async def serving(ip: str, port: int, answer: Callable[[], int]) -> AsyncIterator[None]:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(status=answer(), text=f"code {answer()}")

    app = web.Application()
    app.router.add_get("/health", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, ip, port).start()
    yield
    await runner.cleanup()


async def marked_pod(ns: PlaygroundNamespace) -> Json:
    """A pod with the marks of Succeeded."""
    await ns.pod()
    write_at_once(ns.folder() / "state", "good")
    await ns.marker(probe(EXEC, *BOTH))
    return await ns.until("is marked", lambda pod: labels(pod).get("state") == "good")


async def test_exec_results_stand_on_the_pod_as_condition_labels_annotations_and_events(
    ns: PlaygroundNamespace,
) -> None:
    await ns.pod()
    write_at_once(ns.folder() / "state", "good\n")
    await ns.marker(probe(EXEC, *BOTH))

    pod = await ns.until("succeeds", is_status("True"))

    assert condition(pod, KIND)["message"] == "good"
    assert condition(pod, KIND)["lastProbeTime"]
    assert (labels(pod)["state"], annotations(pod)["cost"]) == ("good", "-1")
    assert "look" not in annotations(pod)

    write_at_once(ns.folder() / "state", "broken\n")
    pod = await ns.until("fails", is_status("False"))

    assert condition(pod, KIND)["message"] == "broken"
    assert (labels(pod)["state"], annotations(pod)["cost"]) == ("bad", "1")
    assert annotations(pod)["look"] == "here"
    for reason, message in (("KruiseProbeSucceeded", "good"), ("KruiseProbeFailed", "broken")):
        await ns.api.events.wait(
            f"event {reason}", lambda r=reason, m=message: has_event(ns, pod, r, m)
        )


def has_event(ns: Any, pod: Json, reason: str, message: str) -> bool:
    return any(
        event["involvedObject"].get("uid") == pod["metadata"]["uid"]
        and event["reason"] == reason
        and event["message"] == f"marker#checked: {message}"
        and event["type"] == "Normal"
        and event["source"]["component"] == "kruise-daemon-podprobe"
        and event["source"]["host"] == "node-0"
        for event in ns.api.events.all()
    )


async def test_a_message_that_changes_while_the_state_stays_moves_no_transition_time(
    ns: PlaygroundNamespace,
) -> None:
    await ns.pod()
    write_at_once(ns.folder() / "state", "good one\n")
    await ns.marker(probe(EXEC))
    before = condition(await ns.until("succeeds", is_status("True")), KIND)

    write_at_once(ns.folder() / "state", "good two\n")
    after = condition(
        await ns.until(
            "has the new message", lambda pod: condition(pod, KIND).get("message") == "good two"
        ),
        KIND,
    )

    assert after["status"] == "True"
    assert after["lastTransitionTime"] == before["lastTransitionTime"]


@pytest.mark.parametrize("port", [pytest.param(7000, id="number"), pytest.param("game", id="name")])
async def test_tcp_follows_the_port(ns: PlaygroundNamespace, port: int | str) -> None:
    ports = [{"name": "game", "containerPort": 7000}]
    container = {"name": "main", "image": "none", "command": ["sleep", "1000"], "ports": ports}
    pod = await ns.pod(containers=[container])
    await ns.marker(probe({"tcpSocket": {"port": port}}))

    pod = await ns.until("fails", is_status("False"))
    assert "connection refused" in condition(pod, KIND)["message"]
    with listening(pod["status"]["podIP"], 7000):
        await ns.until("succeeds", is_status("True"))
    await ns.until("fails again", is_status("False"))


@pytest.mark.parametrize("port", [pytest.param(8000, id="number"), pytest.param("web", id="name")])
async def test_http_follows_the_answer(ns: PlaygroundNamespace, port: int | str) -> None:
    ports = [{"name": "web", "containerPort": 8000}]
    container = {"name": "main", "image": "none", "command": ["sleep", "1000"], "ports": ports}
    pod = await ns.pod(containers=[container])
    answer = 200
    async with serving(pod["status"]["podIP"], 8000, lambda: answer):
        web_page = {"httpGet": {"port": port, "path": "/health"}, "timeoutSeconds": 10}
        await ns.marker(probe(web_page))
        pod = await ns.until("succeeds", is_status("True"))
        assert condition(pod, KIND)["message"] == "code 200"
        answer = 503
        pod = await ns.until("fails", is_status("False"))
    assert condition(pod, KIND)["message"] == "HTTP probe failed with statuscode: 503: code 503"


async def test_with_a_single_policy_the_opposite_result_takes_the_marks_away(
    ns: PlaygroundNamespace,
) -> None:
    await ns.pod()
    write_at_once(ns.folder() / "state", "good")
    only = policy("Succeeded", labels={"game/open": "yes"}, annotations={"game/since": "now"})
    await ns.marker(probe(EXEC, only))
    await ns.until("is marked", lambda pod: labels(pod).get("game/open") == "yes")

    write_at_once(ns.folder() / "state", "closed")
    pod = await ns.until("is not marked", lambda pod: "game/open" not in labels(pod))

    assert "game/since" not in annotations(pod)
    assert condition(pod, KIND)["status"] == "False"
    assert labels(pod)["app"] == "web"


async def test_a_readiness_gate_makes_the_pod_ready_and_not_ready(ns: PlaygroundNamespace) -> None:
    await ns.pod(readinessGates=[{"conditionType": KIND}])
    await ns.until("is not ready", is_status("False", "Ready"))
    write_at_once(ns.folder() / "state", "good")
    await ns.marker(probe(EXEC))
    await ns.until("is ready", is_status("True", "Ready"))

    write_at_once(ns.folder() / "state", "no")
    pod = await ns.until("is not ready again", is_status("False", "Ready"))
    assert condition(pod, "Ready")["reason"] == "ReadinessGatesNotReady"


async def test_a_deleted_marker_takes_its_marks_and_entries_with_it(
    ns: PlaygroundNamespace,
) -> None:
    await marked_pod(ns)

    await ns.playground.api.delete(ns.marker_path())
    await ns.api.markers.until_gone("marker", ns.namespace)

    pod = await ns.until("is unmarked", lambda pod: "state" not in labels(pod))
    assert condition(pod, KIND) == {}
    assert "cost" not in annotations(pod)
    await ns.api.node_pod_probes.until(
        "has no entry", lambda report: not entries(report, pod), name="node-0"
    )


async def test_recreated_marker_does_not_show_the_result_of_its_old_command(
    ns: PlaygroundNamespace,
) -> None:
    pod = await marked_pod(ns)
    await ns.playground.api.delete(ns.marker_path())
    await ns.api.markers.until_gone("marker", ns.namespace)

    await ns.marker(probe(WITHOUT_RESULT, *BOTH))

    await ns.api.node_pod_probes.until(
        "has the new entry, and no longer the old result",
        lambda report: (
            entries(report, pod)
            and (pod["metadata"]["uid"], "marker#checked") not in results_of(report)
        ),
        name="node-0",
    )
    pod = await ns.until("is unmarked", lambda pod: "cost" not in annotations(pod))
    assert (condition(pod, KIND), labels(pod).get("state")) == ({}, None)


async def test_new_policy_is_not_applied_to_the_result_of_an_old_command(
    ns: PlaygroundNamespace,
) -> None:
    await marked_pod(ns)

    edited = probe(
        WITHOUT_RESULT, policy("Succeeded", labels={"state": "fine"}), kind="example.com/other"
    )
    await ns.playground.api.merge(ns.marker_path(), {"spec": {"probes": [edited]}})

    pod = await ns.until("loses its marks", lambda pod: labels(pod).get("state") != "good")
    assert "state" not in labels(pod)
    assert condition(pod, "example.com/other") == condition(pod, KIND) == {}


def entries(report: Json, pod: Json) -> list[Json]:
    listed = report["spec"].get("podProbes") or []
    return [each for each in listed if each["uid"] == pod["metadata"]["uid"]]


@pytest.mark.parametrize("of", ["marker", "pod"])
async def test_a_paused_probe_keeps_its_marks_and_resumes(ns: PlaygroundNamespace, of: str) -> None:
    await marked_pod(ns)
    path = ns.marker_path() if of == "marker" else ns.pod_path()

    async def pause(value: str | None) -> None:
        annotation = {"kruise-probe.io/paused": value}
        await ns.playground.api.merge(path, {"metadata": {"annotations": annotation}})

    await pause("true")
    pod = await ns.until(
        "is paused", lambda pod: condition(pod, KIND).get("reason") == "ProbePaused"
    )
    await ns.api.node_pod_probes.until(
        "has neither entry nor result",
        lambda report: (
            not entries(report, pod)
            and (pod["metadata"]["uid"], "marker#checked") not in results_of(report)
        ),
        name="node-0",
    )
    assert condition(pod, KIND)["status"] == "True"
    assert labels(pod)["state"] == "good"
    write_at_once(ns.folder() / "state", "broken")

    await pause(None)
    pod = await ns.until("has a new result", lambda pod: labels(pod).get("state") == "bad")
    assert "reason" not in condition(pod, KIND)


async def test_a_pod_that_is_no_longer_selected_loses_its_marks(ns: PlaygroundNamespace) -> None:
    await marked_pod(ns)

    await ns.playground.api.merge(ns.pod_path(), {"metadata": {"labels": {"app": "other"}}})

    pod = await ns.until("is unmarked", lambda pod: "state" not in labels(pod))
    assert condition(pod, KIND) == {}


async def test_a_container_that_was_restarted_is_probed_anew(ns: PlaygroundNamespace) -> None:
    await ns.pod()
    write_at_once(ns.folder() / "state", "good")
    await ns.marker(probe(EXEC))
    await ns.until("succeeds", is_status("True"))

    await ns.playground.nodes[0].kill_container(ns.namespace, "web", "main")

    pod = await ns.until("fails: its files are new", is_status("False"))
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 1
    write_at_once(ns.folder() / "state", "good")
    await ns.until("succeeds", is_status("True"))


async def test_an_edited_probe_takes_effect(ns: PlaygroundNamespace) -> None:
    await ns.pod()
    write_at_once(ns.folder() / "state", "good")
    await ns.marker(probe({**EXEC, "periodSeconds": 3600}))
    await ns.until("succeeds", is_status("True"))
    failing = probe({"exec": {"command": ["false"]}, "periodSeconds": 1})
    await ns.playground.api.merge(ns.marker_path(), {"spec": {"probes": [failing]}})
    await ns.until("fails", is_status("False"))


async def test_a_node_report_emptied_by_hand_is_repaired(ns: PlaygroundNamespace) -> None:
    pod = await ns.pod()
    await ns.marker(probe(EXEC))
    await ns.until("has a result", lambda pod: condition(pod, KIND))
    await ns.playground.api.merge(node_pod_probe_path(), {"spec": {"podProbes": []}})
    await ns.api.node_pod_probes.until(
        "has its entry again", lambda report: bool(entries(report, pod)), name="node-0"
    )


async def test_a_marker_that_breaks_the_rules_is_refused_with_the_field(
    ns: PlaygroundNamespace,
) -> None:
    with pytest.raises(Invalid, match=r"spec\.probes\[0\]"):
        await ns.marker(probe({**EXEC, "tcpSocket": {"port": 1}}))


async def test_daemon_and_manager_come_back_from_a_kill_without_flapping(
    ns: PlaygroundNamespace,
) -> None:
    await ns.pod()
    write_at_once(ns.folder() / "state", "good")
    await ns.marker(probe(EXEC, *BOTH))
    pod = await ns.until("succeeds", is_status("True"))
    states = ns.api.pods.history

    await ns.playground.kill_daemon()
    await ns.playground.kill_manager()
    ns.playground.start_daemon()
    ns.playground.start_manager()
    write_at_once(ns.folder() / "state", "good again")
    await ns.until(
        "has the new message", lambda pod: condition(pod, KIND).get("message") == "good again"
    )
    write_at_once(ns.folder() / "state", "bad")
    await ns.until("fails", is_status("False"))

    key = next(key for key in states if key.name == "web" and key.namespace == ns.namespace)
    seen = [condition(each, KIND).get("status") for each in states[key]]
    transitions = [
        after for before, after in zip(["", *seen], seen, strict=False) if after != before
    ]
    assert transitions[-2:] == ["True", "False"], f"flapped: {transitions} ({pod['metadata']})"
