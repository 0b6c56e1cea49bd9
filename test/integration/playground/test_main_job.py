"""From a PodProbeMarker to a marked pod: the real manager and the real daemon, over real HTTP, gRPC and sockets."""

import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from aiohttp import web
from support.world import annotations, condition, labels

from kruise_probe.api.errors import Invalid
from kruise_probe.playground.raw_api import node_pod_probe_path

Json = dict[str, Any]

KIND = "example.com/checked"
EXEC = {"exec": {"command": ["sh", "-c", "cat state; grep -q good state"]}}


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


async def test_exec_results_stand_on_the_pod_as_condition_labels_annotations_and_events(space):
    await space.pod()
    (space.folder() / "state").write_text("good\n")
    await space.marker(probe(EXEC, *BOTH))

    pod = await space.until("succeeds", is_status("True"))

    assert condition(pod, KIND)["message"] == "good"
    assert condition(pod, KIND)["lastProbeTime"]
    assert (labels(pod)["state"], annotations(pod)["cost"]) == ("good", "-1")
    assert "look" not in annotations(pod)

    (space.folder() / "state").write_text("broken\n")
    pod = await space.until("fails", is_status("False"))

    assert condition(pod, KIND)["message"] == "broken"
    assert (labels(pod)["state"], annotations(pod)["cost"]) == ("bad", "1")
    assert annotations(pod)["look"] == "here"
    for reason, message in (("KruiseProbeSucceeded", "good"), ("KruiseProbeFailed", "broken")):
        await space.world.events.wait(
            f"event {reason}", lambda r=reason, m=message: has_event(space, pod, r, m)
        )


def has_event(space: Any, pod: Json, reason: str, message: str) -> bool:
    return any(
        event["involvedObject"].get("uid") == pod["metadata"]["uid"]
        and event["reason"] == reason
        and event["message"] == message
        and event["type"] == "Normal"
        and event["source"]["component"] == "kruise-daemon-podprobe"
        and event["source"]["host"] == "node-0"
        for event in space.world.events.all()
    )


async def test_a_message_that_changes_while_the_state_stays_moves_no_transition_time(space):
    await space.pod()
    (space.folder() / "state").write_text("good one\n")
    await space.marker(probe(EXEC))
    before = condition(await space.until("succeeds", is_status("True")), KIND)

    (space.folder() / "state").write_text("good two\n")
    after = condition(
        await space.until(
            "has the new message", lambda pod: condition(pod, KIND).get("message") == "good two"
        ),
        KIND,
    )

    assert after["status"] == "True"
    assert after["lastTransitionTime"] == before["lastTransitionTime"]


@pytest.mark.parametrize("port", [pytest.param(7000, id="number"), pytest.param("game", id="name")])
async def test_tcp_follows_the_port(space, port):
    ports = [{"name": "game", "containerPort": 7000}]
    container = {"name": "main", "image": "none", "command": ["sleep", "1000"], "ports": ports}
    pod = await space.pod(containers=[container])
    await space.marker(probe({"tcpSocket": {"port": port}}))

    pod = await space.until("fails", is_status("False"))
    assert "connection refused" in condition(pod, KIND)["message"]
    with listening(pod["status"]["podIP"], 7000):
        await space.until("succeeds", is_status("True"))
    await space.until("fails again", is_status("False"))


@pytest.mark.parametrize("port", [pytest.param(8000, id="number"), pytest.param("web", id="name")])
async def test_http_follows_the_answer(space, port):
    ports = [{"name": "web", "containerPort": 8000}]
    container = {"name": "main", "image": "none", "command": ["sleep", "1000"], "ports": ports}
    pod = await space.pod(containers=[container])
    answer = 200
    async with serving(pod["status"]["podIP"], 8000, lambda: answer):
        await space.marker(probe({"httpGet": {"port": port, "path": "/health"}}))
        pod = await space.until("succeeds", is_status("True"))
        assert condition(pod, KIND)["message"] == "code 200"
        answer = 503
        pod = await space.until("fails", is_status("False"))
    assert condition(pod, KIND)["message"] == "HTTP probe failed with statuscode: 503"


async def test_with_a_single_policy_the_opposite_result_takes_the_marks_away(space):
    await space.pod()
    (space.folder() / "state").write_text("good")
    only = policy("Succeeded", labels={"game/open": "yes"}, annotations={"game/since": "now"})
    await space.marker(probe(EXEC, only))
    await space.until("is marked", lambda pod: labels(pod).get("game/open") == "yes")

    (space.folder() / "state").write_text("closed")
    pod = await space.until("is not marked", lambda pod: "game/open" not in labels(pod))

    assert "game/since" not in annotations(pod)
    assert condition(pod, KIND)["status"] == "False"
    assert labels(pod)["app"] == "web"


async def test_a_readiness_gate_makes_the_pod_ready_and_not_ready(space):
    await space.pod(readinessGates=[{"conditionType": KIND}])
    await space.until("is not ready", is_status("False", "Ready"))
    (space.folder() / "state").write_text("good")
    await space.marker(probe(EXEC))
    await space.until("is ready", is_status("True", "Ready"))

    (space.folder() / "state").write_text("no")
    pod = await space.until("is not ready again", is_status("False", "Ready"))
    assert condition(pod, "Ready")["reason"] == "ReadinessGatesNotReady"


async def test_a_deleted_marker_takes_its_marks_and_entries_with_it(space):
    await space.pod()
    (space.folder() / "state").write_text("good")
    await space.marker(probe(EXEC, *BOTH))
    await space.until("is marked", lambda pod: labels(pod).get("state") == "good")

    await space.playground.api.delete(space.marker_path())
    await space.world.markers.until_gone("marker", space.namespace)

    pod = await space.until("is unmarked", lambda pod: "state" not in labels(pod))
    assert condition(pod, KIND) == {}
    assert "cost" not in annotations(pod)
    await space.world.reports.until(
        "has no entry", lambda report: not entries(report, pod), name="node-0"
    )


def entries(report: Json, pod: Json) -> list[Json]:
    listed = report["spec"].get("podProbes") or []
    return [each for each in listed if each["uid"] == pod["metadata"]["uid"]]


async def test_a_pod_that_is_no_longer_selected_loses_its_marks(space):
    await space.pod()
    (space.folder() / "state").write_text("good")
    await space.marker(probe(EXEC, *BOTH))
    await space.until("is marked", lambda pod: labels(pod).get("state") == "good")

    await space.playground.api.merge(space.pod_path(), {"metadata": {"labels": {"app": "other"}}})

    pod = await space.until("is unmarked", lambda pod: "state" not in labels(pod))
    assert condition(pod, KIND) == {}


async def test_a_container_that_was_restarted_is_probed_anew(space):
    await space.pod()
    (space.folder() / "state").write_text("good")
    await space.marker(probe(EXEC))
    await space.until("succeeds", is_status("True"))

    await space.playground.nodes[0].kill_container(space.namespace, "web", "main")

    pod = await space.until("fails: its files are new", is_status("False"))
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 1
    (space.folder() / "state").write_text("good")
    await space.until("succeeds", is_status("True"))


async def test_an_edited_probe_takes_effect(space):
    await space.pod()
    (space.folder() / "state").write_text("good")
    await space.marker(probe({**EXEC, "periodSeconds": 3600}))
    await space.until("succeeds", is_status("True"))
    failing = probe({"exec": {"command": ["false"]}, "periodSeconds": 1})
    await space.playground.api.merge(space.marker_path(), {"spec": {"probes": [failing]}})
    await space.until("fails", is_status("False"))


async def test_a_node_report_emptied_by_hand_is_repaired(space):
    pod = await space.pod()
    await space.marker(probe(EXEC))
    await space.until("has a result", lambda pod: condition(pod, KIND))
    await space.playground.api.merge(node_pod_probe_path(), {"spec": {"podProbes": []}})
    await space.world.reports.until(
        "has its entry again", lambda report: bool(entries(report, pod)), name="node-0"
    )


async def test_a_marker_that_breaks_the_rules_is_refused_with_the_field(space):
    with pytest.raises(Invalid, match=r"spec\.probes\[0\]"):
        await space.marker(probe({**EXEC, "tcpSocket": {"port": 1}}))


async def test_daemon_and_manager_come_back_from_a_kill_without_flapping(space):
    await space.pod()
    (space.folder() / "state").write_text("good")
    await space.marker(probe(EXEC, *BOTH))
    pod = await space.until("succeeds", is_status("True"))
    states = space.world.pods.history

    await space.playground.kill_daemon()
    await space.playground.kill_manager()
    space.playground.start_daemon()
    space.playground.start_manager()
    (space.folder() / "state").write_text("good again")
    await space.until(
        "has the new message", lambda pod: condition(pod, KIND).get("message") == "good again"
    )
    (space.folder() / "state").write_text("bad")
    await space.until("fails", is_status("False"))

    key = next(key for key in states if key.name == "web" and key.namespace == space.namespace)
    seen = [condition(each, KIND).get("status") for each in states[key]]
    transitions = [
        after for before, after in zip(["", *seen], seen, strict=False) if after != before
    ]
    assert transitions[-2:] == ["True", "False"], f"flapped: {transitions} ({pod['metadata']})"
