"""Selects the newest container of each name from a list, and compares two lists.

Pure functions. A runtime also lists exited containers and containers of replaced sandboxes.

Source: kubelet pkg/kubelet/kuberuntime (the last attempt is a container's status), pkg/kubelet/pleg/generic.go.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from kruise_probe.daemon.cri.runtime import ContainerState, RuntimeContainer


class ContainerKey(NamedTuple):
    pod_uid: str
    name: str


def newest(containers: Sequence[RuntimeContainer]) -> dict[ContainerKey, RuntimeContainer]:
    """The newest container of each name in each pod: the highest attempt, then the latest creation time.

    With several sandboxes, a running container comes first. A new sandbox may restart the attempt numbers, and its
    containers run only after those of the old sandbox have exited.
    """
    of_sandboxes: dict[tuple[str, str, str], RuntimeContainer] = {}
    for container in containers:
        if not container.pod_uid:
            continue
        in_sandbox = container.pod_uid, container.name, container.sandbox_id
        other = of_sandboxes.get(in_sandbox)
        if other is None or _age(container) > _age(other):
            of_sandboxes[in_sandbox] = container
    chosen: dict[ContainerKey, RuntimeContainer] = {}
    for container in of_sandboxes.values():
        key = ContainerKey(container.pod_uid, container.name)
        other = chosen.get(key)
        if other is None or _precedence(container) > _precedence(other):
            chosen[key] = container
    return chosen


def _age(container: RuntimeContainer) -> tuple[int, int]:
    return container.attempt, container.created_at_ns


def _precedence(container: RuntimeContainer) -> tuple[bool, int, int]:
    return container.state is ContainerState.RUNNING, *_age(container)


def ids_changed(
    before: Collection[RuntimeContainer], after: Collection[RuntimeContainer]
) -> set[str]:
    """Ids of containers that were added or removed, or changed their state."""
    states = {container.id: container.state for container in before}
    changed = {
        container.id for container in after if states.pop(container.id, None) != container.state
    }
    return changed | states.keys()
