"""A pod's status as the kubelet writes it, computed from the spec and the container records. Pure.

It contains only the kubelet's own condition types. Other conditions are read for readiness gates.

Source: kubelet pkg/kubelet/status/generate.go, kubelet_pods.go (convertToAPIContainerStatuses).
Differs: no observedGeneration in conditions, no resources, no host network. The message of a container that failed is
the last line of its log, whatever its terminationMessagePolicy says: it has no /dev/termination-log of its own.
"""

from collections.abc import Iterable
from datetime import datetime

from kruise_probe.api.times import format_time
from kruise_probe_playground.node.containers import LocalContainer
from kruise_probe_playground.node.lifecycle import (
    ContainerRecord,
    Records,
    backoff_seconds,
    final_phase,
    initialized,
    phase,
    restarts,
)
from kruise_probe_playground.node.pods import Json, NodePod, PodContainer

MESSAGE_BYTES = 2_048
"""The kubelet's maximum for a message from a log."""


def container_id(container: LocalContainer) -> str:
    """The containerID of a pod's status."""
    return f"playground://{container.id}"


def pod_status(
    pod: NodePod, records: Records, ip: str, node_ip: str, *, before: Json, now: datetime
) -> Json:
    """The whole status. `ip` is empty without a sandbox; `before` is the last status, for transition times."""
    status: Json = {
        "phase": phase(pod.spec, records),
        "startTime": before.get("startTime") or format_time(now),
        "hostIP": node_ip,
        "hostIPs": [{"ip": node_ip}],
        "qosClass": "BestEffort",
        "conditions": _with_times(_conditions(pod, records, ip), before, now),
        "containerStatuses": [
            _container_status(pod, records[container.name], records)
            for container in pod.spec.containers
        ],
    }
    if ip:
        status["podIP"] = ip
        status["podIPs"] = [{"ip": ip}]
    if pod.spec.init_containers:
        status["initContainerStatuses"] = [
            _container_status(pod, records[container.name], records)
            for container in pod.spec.init_containers
        ]
    return status


def _with_times(
    conditions: Iterable[Json],
    before: Json,
    now: datetime,
) -> list[Json]:
    earlier = {condition["type"]: condition for condition in before.get("conditions", ())}
    timed = []
    for condition in conditions:
        last = earlier.get(condition["type"])
        same = last is not None and last["status"] == condition["status"]
        at = last["lastTransitionTime"] if last is not None and same else format_time(now)
        timed.append({**condition, "lastTransitionTime": at})
    return timed


def _condition(kind: str, problem: tuple[str, str] | None) -> Json:
    """A condition that is True without a problem. An absent reason or message is an explicit null."""
    reason, message = problem or (None, None)
    status = "False" if problem else "True"
    return {"type": kind, "status": status, "reason": reason, "message": message}


def _conditions(pod: NodePod, records: Records, ip: str) -> list[Json]:
    containers = _containers_problem(pod, records)
    return [
        _condition("PodScheduled", None),
        _condition("PodReadyToStartContainers", None if ip else ("", "")),
        _condition("Initialized", _initialized_problem(pod, records)),
        _condition("ContainersReady", containers),
        _condition("Ready", containers or _gates_problem(pod)),
    ]


def _names(containers: Iterable[PodContainer]) -> str:
    return f"[{' '.join(container.name for container in containers)}]"


def _initialized_problem(pod: NodePod, records: Records) -> tuple[str, str] | None:
    if initialized(pod.spec, records):
        return None
    incomplete = [
        container
        for container in pod.spec.init_containers
        if not (records[container.name].ready or records[container.name].exit_code == 0)
    ]
    return "ContainersNotInitialized", f"containers with incomplete status: {_names(incomplete)}"


def _containers_problem(pod: NodePod, records: Records) -> tuple[str, str] | None:
    final = final_phase(pod.spec, records)
    if final:
        return ("PodCompleted" if final == "Succeeded" else "PodFailed"), ""
    unready = [
        container
        for container in pod.spec.all_containers()
        if (container in pod.spec.containers or container.sidecar)
        and not records[container.name].ready
    ]
    if not unready:
        return None
    return "ContainersNotReady", f"containers with unready status: {_names(unready)}"


def _gates_problem(pod: NodePod) -> tuple[str, str] | None:
    messages = []
    for gate in pod.spec.readiness_gates:
        kind = gate.condition_type
        condition = pod.condition(kind)
        if condition is None:
            messages.append(
                f'corresponding condition of pod readiness gate "{kind}" does not exist.'
            )
        elif condition.status != "True":
            messages.append(
                f'the status of pod readiness gate "{kind}" is not "True", but {condition.status}'
            )
    return ("ReadinessGatesNotReady", ", ".join(messages)) if messages else None


def _container_status(pod: NodePod, record: ContainerRecord, records: Records) -> Json:
    current = record.current
    is_init = record.spec in pod.spec.init_containers and not record.spec.sidecar
    status: Json = {
        "name": record.spec.name,
        "image": record.spec.image or "",
        "imageID": "",
        "restartCount": record.restarts,
        "started": record.running and record.started,
        "ready": record.ready or (is_init and record.exit_code == 0),
        "state": _state(pod, record, records),
        "lastState": {},
    }
    if current:
        status["containerID"] = container_id(current)
    ended = current if current and "waiting" in status["state"] else record.previous
    if ended:
        status["lastState"] = _terminated(ended)
    return status


def _state(pod: NodePod, record: ContainerRecord, records: Records) -> Json:
    current = record.current
    if record.problem:
        return _waiting("CreateContainerConfigError", record.problem)
    if current is None:
        waits_for_init = record.spec in pod.spec.containers and not initialized(pod.spec, records)
        return _waiting("PodInitializing" if waits_for_init else "ContainerCreating")
    if current.running:
        return {"running": {"startedAt": _stamp(current.started_at)}}
    if backs_off(pod, record, records):
        wait = backoff_seconds(record.quick_ends)
        message = (
            f"back-off {wait:.0f}s restarting failed container={record.spec.name}"
            f" pod={pod_full_name(pod)}"
        )
        return _waiting("CrashLoopBackOff", message)
    return _terminated(current)


def pod_full_name(pod: NodePod) -> str:
    """The name in the kubelet's messages."""
    return f"{pod.metadata.name}_{pod.metadata.namespace}({pod.uid})"


def backs_off(pod: NodePod, record: ContainerRecord, records: Records) -> bool:
    """Whether the container has ended and waits to be started again."""
    code = record.exit_code
    return (
        code is not None
        and backoff_seconds(record.quick_ends) > 0
        and not pod.deleting
        and restarts(pod.spec, record.spec, code)
        and final_phase(pod.spec, records) is None
    )


def _waiting(reason: str, message: str = "") -> Json:
    return {
        "waiting": {
            "reason": reason,
            **({"message": message} if message else {}),
        }
    }


def _terminated(container: LocalContainer) -> Json:
    ended: Json = {
        "exitCode": container.exit_code,
        "reason": container.reason,
        "startedAt": _stamp(container.started_at),
        "finishedAt": _stamp(container.finished_at),
        "containerID": container_id(container),
    }
    message = container.message or (container.exit_code and container.log.last_line())
    if message:
        ended["message"] = message.encode()[:MESSAGE_BYTES].decode(errors="ignore")
    return {"terminated": ended}


def _stamp(at: datetime | None) -> str | None:
    return format_time(at) if at else None
