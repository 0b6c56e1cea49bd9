"""Which containers of a pod should start or stop now, and how the pod as a whole stands. Pure.

Source: kubelet pkg/kubelet/kuberuntime (computePodActions, computeInitContainerActions), kubelet_pods.go (getPhase).
Differs: no sandbox changes, no ephemeral containers, no container restart rules.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kruise_probe.playground.node.pods import PodContainer, PodSpec
from kruise_probe.playground.node.records import ContainerRecord

Records = Mapping[str, ContainerRecord]


class Plan(NamedTuple):
    """`wake_deadline` is the loop time at which a container comes out of its backoff, or None."""

    start: tuple[str, ...]
    stop: tuple[str, ...]
    wake_deadline: float | None


def restarts(spec: PodSpec, container: PodContainer, exit_code: int) -> bool:
    """Whether a container that ended so is started again; init containers once succeeded are not."""
    policy = spec.restart_policy or "Always"
    if container in (spec.init_containers or ()):
        return container.sidecar or (exit_code != 0 and policy != "Never")
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def outcome(spec: PodSpec, records: Records) -> str | None:
    """`Succeeded` or `Failed` once nothing will run any more, else None."""

    def final_code(container: PodContainer) -> int | None:
        code = records[container.name].exit_code
        return None if code is None or restarts(spec, container, code) else code

    for container in spec.init_containers or ():
        if not container.sidecar and final_code(container):
            return "Failed"
    codes = [final_code(container) for container in spec.containers]
    if None in codes:
        return None
    return "Failed" if any(codes) else "Succeeded"


def initialized(spec: PodSpec, records: Records) -> bool:
    """Every init container has succeeded, or, a sidecar, has started; it never becomes untrue again."""
    if any(records[each.name].current for each in spec.containers):
        return True
    return all(_complete(each, records) for each in spec.init_containers or ())


def _complete(container: PodContainer, records: Records) -> bool:
    record = records[container.name]
    return record.ready if container.sidecar else record.exit_code == 0


def _wanted(spec: PodSpec, records: Records) -> list[PodContainer]:
    """The containers that should run now, in the order of their start."""
    init_containers = spec.init_containers or ()
    if any(records[each.name].current for each in spec.containers):
        return [*(each for each in init_containers if each.sidecar), *spec.containers]
    wanted: list[PodContainer] = []
    for container in init_containers:
        if container.sidecar or not _complete(container, records):
            wanted.append(container)
        if not _complete(container, records):
            return wanted
    return [*wanted, *spec.containers]


def plan(spec: PodSpec, records: Records, *, loop_time: float) -> Plan:
    """What to do now; nothing to start once the pod has an outcome, then its sidecars stop."""
    if outcome(spec, records):
        left = tuple(name for name, record in records.items() if record.running)
        return Plan((), left, None)
    start: list[str] = []
    wake_deadline: float | None = None
    for container in _wanted(spec, records):
        record = records[container.name]
        code = record.exit_code
        if record.running or (code is not None and not restarts(spec, container, code)):
            continue
        if record.restart_deadline <= loop_time:
            start.append(container.name)
        elif wake_deadline is None or record.restart_deadline < wake_deadline:
            wake_deadline = record.restart_deadline
    return Plan(tuple(start), (), wake_deadline)


def phase(spec: PodSpec, records: Records) -> str:
    """The pod's phase, as `kubectl get pods` shows it."""
    final = outcome(spec, records)
    if final:
        return final
    begun = all(records[each.name].current for each in spec.containers)
    return "Running" if begun and initialized(spec, records) else "Pending"
