"""READY, STATUS and RESTARTS."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kruise_probe_playground.apiserver.pod_printer import pod_ready, pod_restarts, pod_status
from kruise_probe_playground.apiserver.schema import Json

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
RUNNING: Json = {"running": {}}


def container(state: Json, name: str = "c", **more: Any) -> Json:
    return {"name": name, "state": state, "ready": "running" in state, **more}


def pod(*, sidecar: bool = False, deleted: bool = False, **status: Any) -> Json:
    spec: Json = {"containers": [{"name": "c"}]}
    init: Json = {"name": "s"}
    if sidecar:
        init["restartPolicy"] = "Always"
    if sidecar or "initContainerStatuses" in status:
        spec["initContainers"] = [init]
    metadata = {"name": "p", **({"deletionTimestamp": "x"} if deleted else {})}
    return {"metadata": metadata, "spec": spec, "status": status}


def terminated(code: int = 0, **more: Any) -> Json:
    return {"terminated": {"exitCode": code, **more}}


@pytest.mark.parametrize(
    ("of", "status", "ready"),
    [
        pytest.param(pod(phase="Pending"), "Pending", "0/1", id="pending"),
        pytest.param(
            pod(phase="Running", containerStatuses=[container(RUNNING)]),
            "Running",
            "1/1",
            id="running",
        ),
        pytest.param(pod(phase="Running", deleted=True), "Terminating", "0/1", id="terminating"),
        pytest.param(pod(phase="Failed", deleted=True), "Failed", "0/1", id="failed-while-deleted"),
        pytest.param(
            pod(phase="Running", deleted=True, reason="NodeLost"), "Unknown", "0/1", id="node-lost"
        ),
        pytest.param(pod(phase="Failed", reason="Evicted"), "Evicted", "0/1", id="evicted"),
        pytest.param(
            pod(
                phase="Pending", conditions=[{"type": "PodScheduled", "reason": "SchedulingGated"}]
            ),
            "SchedulingGated",
            "0/1",
            id="gated",
        ),
        pytest.param(
            pod(phase="Failed", containerStatuses=[container(terminated(3))]),
            "ExitCode:3",
            "0/1",
            id="exit-code",
        ),
        pytest.param(
            pod(phase="Failed", containerStatuses=[container(terminated(9, signal=9))]),
            "Signal:9",
            "0/1",
            id="signal",
        ),
        pytest.param(
            pod(
                phase="Running",
                containerStatuses=[
                    container(RUNNING),
                    container(terminated(reason="Completed"), "d"),
                ],
                conditions=[{"type": "Ready", "status": "True"}],
            ),
            "Running",
            "1/1",
            id="completed-after-a-ready-one",
        ),
        pytest.param(
            pod(
                phase="Running",
                containerStatuses=[
                    container(terminated(reason="Completed")),
                    container(RUNNING, "d"),
                ],
                conditions=[{"type": "Ready", "status": "True"}],
            ),
            "Running",
            "1/1",
            id="completed-before-a-ready-one",
        ),
        pytest.param(
            pod(
                phase="Running",
                containerStatuses=[
                    container(terminated(reason="Completed")),
                    container(RUNNING, "d"),
                ],
            ),
            "NotReady",
            "1/1",
            id="completed-beside-one-that-is-not",
        ),
        pytest.param(
            pod(
                phase="Running",
                containerStatuses=[
                    container(terminated(reason="Completed")),
                    container(terminated(1, reason="Error"), "d"),
                ],
            ),
            "Error",
            "0/1",
            id="completed-beside-a-failed-one",
        ),
        pytest.param(
            pod(phase="Pending", initContainerStatuses=[container({"waiting": {}}, "s")]),
            "Init:0/1",
            "0/1",
            id="init-waiting",
        ),
        pytest.param(
            pod(
                phase="Pending",
                initContainerStatuses=[container({"waiting": {"reason": "ErrImagePull"}}, "s")],
            ),
            "Init:ErrImagePull",
            "0/1",
            id="init-waiting-with-a-reason",
        ),
        pytest.param(
            pod(phase="Pending", initContainerStatuses=[container(terminated(2), "s")]),
            "Init:ExitCode:2",
            "0/1",
            id="init-failed",
        ),
        pytest.param(
            pod(
                phase="Running",
                initContainerStatuses=[container(terminated(), "s")],
                containerStatuses=[container(RUNNING)],
            ),
            "Running",
            "1/1",
            id="init-done",
        ),
        pytest.param(
            pod(
                sidecar=True,
                phase="Running",
                initContainerStatuses=[container(RUNNING, "s", started=True)],
                containerStatuses=[container(RUNNING)],
            ),
            "Running",
            "2/2",
            id="sidecar",
        ),
    ],
)
def test_status_and_ready_of_pods(of: Json, status: str, ready: str) -> None:
    assert pod_ready(of) == ready
    assert pod_status(of) == status


def test_restarts_include_sidecars_and_the_last_time() -> None:
    ended = {"terminated": {"finishedAt": "2026-01-02T03:04:00Z"}}
    of = pod(
        sidecar=True,
        phase="Running",
        initContainerStatuses=[container(RUNNING, "s", started=True, restartCount=1)],
        containerStatuses=[container(RUNNING, restartCount=2, lastState=ended)],
    )
    assert pod_restarts(of, NOW) == "3 (5s ago)"
    assert pod_restarts(pod(phase="Pending"), NOW) == "0"
