"""Which containers of a pod to start or stop now, and the phase of the pod: pure functions of its container records.

Source: kubelet pkg/kubelet/kuberuntime (computePodActions, computeInitContainerActions), kubelet_pods.go (getPhase).
Differs: no sandbox changes, no ephemeral containers, no container restart rules.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from kruise_probe_playground.node.containers import LocalContainer
from kruise_probe_playground.node.pods import PodContainer, PodSpec

FIRST_BACKOFF_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 10.0
HEALTHY_SECONDS = 10.0
"""A container that ran this long resets its backoff. The kubelet has 10 s, 300 s and 600 s, too long for a demonstration."""


class ContainerRecord(msgspec.Struct, eq=False):
    """All attempts of one container of a pod. Only the pod's worker changes it.

    Attributes:
        current: the newest attempt; None before the first.
        previous: the attempt before it, which has ended.
        restarts: the number of attempts after the first.
        started: its startup probe succeeded, or it has none.
        problem: why it cannot be created; empty if it can.
        began: loop time of the newest start.
        restart_deadline: loop time of the next start.
        quick_ends: consecutive ends before `HEALTHY_SECONDS`.
    """

    spec: PodContainer
    current: LocalContainer | None = None
    previous: LocalContainer | None = None
    restarts: int = 0
    started: bool = False
    problem: str = ""
    began: float = 0.0
    restart_deadline: float = 0.0
    quick_ends: int = 0

    @property
    def running(self) -> bool:
        return self.current is not None and self.current.running

    @property
    def exit_code(self) -> int | None:
        """Of the newest attempt; None if it has not ended."""
        return None if self.current is None or self.current.running else self.current.exit_code

    @property
    def ready(self) -> bool:
        return self.running and self.started

    def note_end(self, *, now: float) -> None:
        """Set the time of the next start after an end at this loop time, with backoff."""
        self.started = False
        self.quick_ends = 1 if now - self.began >= HEALTHY_SECONDS else self.quick_ends + 1
        self.restart_deadline = now + backoff_seconds(self.quick_ends)


def backoff_seconds(quick_ends: int) -> float:
    """The backoff after so many quick ends: 0, 1, 2, 4, 8, then 10."""
    if quick_ends <= 1:
        return 0.0
    return min(FIRST_BACKOFF_SECONDS * 2.0 ** min(quick_ends - 2, 10), LONGEST_BACKOFF_SECONDS)


Records = Mapping[str, ContainerRecord]


class Plan(NamedTuple):
    """`wake_deadline` is the loop time at which the next backoff ends, or None."""

    start: tuple[str, ...]
    stop: tuple[str, ...]
    wake_deadline: float | None


def restarts(spec: PodSpec, container: PodContainer, exit_code: int) -> bool:
    """Whether a container is restarted after this exit code. A completed init container is not."""
    policy = spec.restart_policy or "Always"
    if container in spec.init_containers:
        return container.sidecar or (exit_code != 0 and policy != "Never")
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def final_phase(spec: PodSpec, records: Records) -> str | None:
    """`Succeeded` or `Failed` if no container will run again, else None."""

    def final_code(container: PodContainer) -> int | None:
        code = records[container.name].exit_code
        return None if code is None or restarts(spec, container, code) else code

    for container in spec.init_containers:
        if not container.sidecar and final_code(container):
            return "Failed"
    codes = [final_code(container) for container in spec.containers]
    if None in codes:
        return None
    return "Failed" if any(codes) else "Succeeded"


def initialized(spec: PodSpec, records: Records) -> bool:
    """Whether every init container has completed, and every sidecar has started. It stays true."""
    if any(records[container.name].current for container in spec.containers):
        return True
    return all(_complete(container, records) for container in spec.init_containers)


def _complete(container: PodContainer, records: Records) -> bool:
    record = records[container.name]
    return record.ready if container.sidecar else record.exit_code == 0


def _wanted(spec: PodSpec, records: Records) -> list[PodContainer]:
    """The containers that should run now, in start order."""
    init_containers = spec.init_containers
    if any(records[container.name].current for container in spec.containers):
        return [
            *(container for container in init_containers if container.sidecar),
            *spec.containers,
        ]
    wanted: list[PodContainer] = []
    for container in init_containers:
        if container.sidecar or not _complete(container, records):
            wanted.append(container)
        if not _complete(container, records):
            return wanted
    return [*wanted, *spec.containers]


def plan(spec: PodSpec, records: Records, *, now: float) -> Plan:
    """What to start and stop at this loop time. When the pod has a final phase, its sidecars are stopped."""
    if final_phase(spec, records):
        left = tuple(name for name, record in records.items() if record.running)
        return Plan((), left, None)
    start: list[str] = []
    later: list[float] = []
    for container in _wanted(spec, records):
        record = records[container.name]
        code = record.exit_code
        if record.running or (code is not None and not restarts(spec, container, code)):
            continue
        if record.restart_deadline <= now:
            start.append(container.name)
        else:
            later.append(record.restart_deadline)
    return Plan(
        tuple(start),
        (),
        min(later, default=None),
    )


def phase(spec: PodSpec, records: Records) -> str:
    """The pod's phase, as `kubectl get pods` shows it."""
    final = final_phase(spec, records)
    if final:
        return final
    begun = all(records[container.name].current for container in spec.containers)
    return "Running" if begun and initialized(spec, records) else "Pending"
