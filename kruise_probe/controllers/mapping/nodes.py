"""Event handlers of Nodes and of the agents' Leases."""

from collections.abc import Callable
from datetime import datetime

from kruise_probe.api.core import Lease, Node
from kruise_probe.api.names import node_of_agent_lease
from kruise_probe.controllers.caches import Caches
from kruise_probe.controllers.mapping.keys import Keys
from kruise_probe.controllers.serverless import is_virtual
from kruise_probe.workqueue.priority import Priority


class NodeEvents:
    """Enqueues a Node, its agent and its pods when it is created, deleted, or becomes virtual or real."""

    def __init__(self, caches: Caches, keys: Keys) -> None:
        self._caches = caches
        self._keys = keys

    def on_add(self, obj: Node, is_initial: bool) -> None:
        self._keys.node(obj.key.name, is_initial)
        if not is_initial:
            self._enqueue_pods(obj)

    def on_update(self, old: Node, new: Node) -> None:
        if old is new:
            self._keys.node(new.key.name, initial=True)
        elif old.uid != new.uid or is_virtual(old) != is_virtual(new):
            self._keys.node(new.key.name)
            self._enqueue_pods(new)

    def on_delete(self, last_known: Node) -> None:
        self._keys.node(last_known.key.name)
        self._enqueue_pods(last_known)

    def _enqueue_pods(self, node: Node) -> None:
        self._keys.agents.add(node.key.name)
        wake_pods(self._caches, self._keys, node.key.name)


class LeaseEvents:
    """Records heartbeats. A renewal in time only updates a dictionary: the timer at the old expiry is still set.

    A change that makes the Lease expire earlier enqueues the agent at once.
    """

    def __init__(
        self,
        caches: Caches,
        keys: Keys,
        *,
        is_silent: Callable[[str], bool],
        now: Callable[[], datetime],
    ) -> None:
        self._caches = caches
        self._keys = keys
        self._is_silent = is_silent
        self._now = now

    def on_add(self, obj: Lease, is_initial: bool) -> None:
        node = node_of_agent_lease(obj.key.name)
        if node:
            self._caches.heartbeats.observe(node, obj, self._now())
            self._keys.agents.add(node, Priority.LOW if is_initial else Priority.NORMAL)

    def on_update(self, old: Lease, new: Lease) -> None:
        node = node_of_agent_lease(new.key.name)
        if not node:
            return
        before = self._caches.heartbeats.get(node)
        self._caches.heartbeats.observe(node, new, self._now())
        after = self._caches.heartbeats.get(node)
        sooner = before is None or after is None or after.expires_at < before.expires_at
        if sooner or self._is_silent(node):
            self._keys.agents.add(node)

    def on_delete(self, last_known: Lease) -> None:
        node = node_of_agent_lease(last_known.key.name)
        if node:
            self._caches.heartbeats.forget(node)
            self._keys.agents.add(node)


def wake_pods(caches: Caches, keys: Keys, node: str) -> None:
    """Enqueues all pods of a node and the status of their markers."""
    for pod in caches.pods_on(node):
        markers = caches.matching.markers_of(pod)
        if markers:
            keys.pod(pod.key)
            keys.enqueue_marker_status(markers)
