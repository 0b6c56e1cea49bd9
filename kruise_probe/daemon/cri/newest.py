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
    """The container of each name in each pod: a running one, else the highest attempt, then the latest creation time.

    A runtime may keep a newer container that was only created beside the one that runs. A new sandbox may restart the
    attempt numbers, and its containers run only after those of the old sandbox have exited.
    """
    chosen: dict[ContainerKey, RuntimeContainer] = {}
    for container in containers:
        if not container.pod_uid:
            continue
        key = ContainerKey(container.pod_uid, container.name)
        other = chosen.get(key)
        if other is None or _precedence(container) > _precedence(other):
            chosen[key] = container
    return chosen


def _precedence(container: RuntimeContainer) -> tuple[bool, int, int]:
    running = container.state is ContainerState.RUNNING
    return running, container.attempt, container.created_at_ns


def ids_changed(
    before: Collection[RuntimeContainer], after: Collection[RuntimeContainer]
) -> set[str]:
    """Ids of containers that were added or removed, or changed their state."""
    states = {container.id: container.state for container in before}
    changed = {
        container.id for container in after if states.pop(container.id, None) != container.state
    }
    return changed | states.keys()
