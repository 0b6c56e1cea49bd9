"""Containers of the embedded node in any state, without a process."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from kruise_probe_playground.node.container_log import ContainerLog
from kruise_probe_playground.node.containers import (
    ContainerConfig,
    LocalContainer,
    Sandbox,
)
from kruise_probe_playground.node.lifecycle import ContainerRecord
from kruise_probe_playground.node.pods import NODE_PODS, NodePod, PodContainer

AT = datetime(2026, 1, 1, tzinfo=UTC)


def node_pod(*containers: Any, init: Any = (), **more: Any) -> NodePod:
    """A pod of these containers (names, or whole); `more` goes into metadata, spec or status by its name."""
    metadata = {"name": "web", "namespace": "default", "uid": "uid-1", **more.pop("metadata", {})}
    status = more.pop("status", {})
    spec: dict[str, Any] = {"containers": [_container(each) for each in containers], **more}
    if init:
        spec["initContainers"] = [_container(each) for each in init]
    return NODE_PODS.decode(
        msgspec.json.encode({"metadata": metadata, "spec": spec, "status": status})
    )


def _container(given: Any) -> dict[str, Any]:
    return given if isinstance(given, dict) else {"name": given, "command": ["run"]}


def sidecar(name: str) -> dict[str, Any]:
    return {"name": name, "command": ["run"], "restartPolicy": "Always"}


def container(name: str, exit_code: int | None = None) -> LocalContainer:
    """One that runs, or has ended with this code."""
    found = LocalContainer(
        id=f"id-of-{name}",
        sandbox=Sandbox("sandbox", "default", "web", "uid-1", "127.10.1.1", {}, Path(), AT),
        config=ContainerConfig(name, "none", ("run",), {}),
        folder=Path(),
        environment={},
        created_at=AT,
        log=ContainerLog(),
        ended=asyncio.Event(),
        on_end=lambda _: None,
        started_at=AT,
    )
    if exit_code is not None:
        found.finished_at, found.exit_code = AT, exit_code
        found.reason = "Completed" if exit_code == 0 else "Error"
        found.ended.set()
    return found


def record(
    spec: PodContainer, how: str = "none", *, started: bool = True, restart_deadline: float = 0.0
) -> ContainerRecord:
    """A record: `none` (never created), `running`, or the exit code of its end, as text."""
    made = ContainerRecord(spec, restart_deadline=restart_deadline)
    if how == "running":
        made.current = container(spec.name)
        made.started = started
    elif how != "none":
        made.current = container(spec.name, int(how))
    return made


def records(pod: NodePod, **how: str) -> dict[str, ContainerRecord]:
    """Records of all containers of a pod; those that are not named were never created."""
    return {
        each.name: record(each, how.get(each.name, "none")) for each in pod.spec.all_containers()
    }
