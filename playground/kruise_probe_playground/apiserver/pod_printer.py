"""READY, STATUS and RESTARTS of a pod in `kubectl get pods`.

Source: kubernetes pkg/printers/internalversion/printers.go (printPod).
Differs: nothing.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from kruise_probe_playground.apiserver.columns import age
from kruise_probe_playground.apiserver.schema import Json


def _statuses(pod: Json, key: str) -> Sequence[Json]:
    return (pod.get("status") or {}).get(key) or ()


def _sidecars(pod: Json) -> set[str]:
    containers = pod["spec"].get("initContainers") or ()
    return {each["name"] for each in containers if each.get("restartPolicy") == "Always"}


def _state(status: Json, name: str) -> Json | None:
    state: Json | None = (status.get("state") or {}).get(name)
    return state


def _condition(pod: Json, kind: str) -> bool:
    return any(
        each["type"] == kind and each.get("status") == "True"
        for each in _statuses(pod, "conditions")
    )


class _Initializing(NamedTuple):
    """Progress of the init containers: `reason` is None when all have completed."""

    reason: str | None
    ready_sidecars: int


def _initializing(pod: Json) -> _Initializing:
    sidecars, ready = _sidecars(pod), 0
    for index, status in enumerate(_statuses(pod, "initContainerStatuses")):
        terminated, waiting = _state(status, "terminated"), _state(status, "waiting")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if status["name"] in sidecars and status.get("started"):
            ready += bool(status.get("ready"))
            continue
        if terminated is not None:
            return _Initializing(f"Init:{_ended(terminated)}", ready)
        if waiting and waiting.get("reason") not in (None, "", "PodInitializing"):
            return _Initializing(f"Init:{waiting['reason']}", ready)
        return _Initializing(f"Init:{index}/{len(pod['spec']['initContainers'])}", ready)
    return _Initializing(None, ready)


def _ended(terminated: Json) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _runs(status: Json) -> bool:
    return bool(status.get("ready")) and _state(status, "running") is not None


def _past_init(pod: Json) -> bool:
    return _initializing(pod).reason is None or _condition(pod, "Initialized")


def pod_ready(pod: Json) -> str:
    """`1/2`: ready containers, and all containers and sidecars."""
    total = len(pod["spec"].get("containers") or ()) + len(_sidecars(pod))
    ready = _initializing(pod).ready_sidecars
    if _past_init(pod):
        ready += sum(
            _runs(each) and not _is_waiting(each) and _state(each, "terminated") is None
            for each in _statuses(pod, "containerStatuses")
        )
    return f"{ready}/{total}"


def _is_waiting(status: Json) -> bool:
    return bool((_state(status, "waiting") or {}).get("reason"))


def pod_status(pod: Json) -> str:
    """STATUS: the phase, or a more specific reason."""
    status = pod.get("status") or {}
    phase = status.get("phase") or ""
    if "deletionTimestamp" in pod["metadata"]:
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if phase not in ("Succeeded", "Failed"):
            return "Terminating"
    reason = status.get("reason") or phase
    if any(each.get("reason") == "SchedulingGated" for each in _statuses(pod, "conditions")):
        reason = "SchedulingGated"
    initializing = _initializing(pod).reason
    if not _past_init(pod):
        return initializing or reason
    return _containers_reason(pod, initializing or reason)


def _containers_reason(pod: Json, reason: str) -> str:
    failed, running = "", False
    for status in reversed(_statuses(pod, "containerStatuses")):
        terminated = _state(status, "terminated")
        if _is_waiting(status):
            reason = (_state(status, "waiting") or {})["reason"]
        elif terminated is not None:
            reason = _ended(terminated)
            failed = reason if terminated.get("exitCode") else failed
        elif _runs(status):
            running = True
    if reason != "Completed":
        return reason
    if running and _condition(pod, "Ready"):
        return "Running"
    return failed or ("NotReady" if running else reason)


def pod_restarts(pod: Json, now: datetime) -> str:
    """`3 (5m ago)`: the number of restarts, and the time since the last one."""
    sidecars = _sidecars(pod)
    counted = _statuses(pod, "initContainerStatuses")
    if _past_init(pod):
        counted = [each for each in counted if each["name"] in sidecars]
        counted += list(_statuses(pod, "containerStatuses"))
    restarts = sum(each.get("restartCount", 0) for each in counted)
    ends = [_last_end(each) for each in counted]
    last = max((each for each in ends if each), default="")
    return f"{restarts} ({age(last, now)} ago)" if restarts and last else str(restarts)


def _last_end(status: Json) -> Any:
    last = (status.get("lastState") or {}).get("terminated") or {}
    return last.get("finishedAt") or ""
