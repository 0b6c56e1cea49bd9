"""Detects daemons that stop or resume renewing their Lease. Key: the node's name.

Decides nothing about pods: it only enqueues them when the result of `staleness` has changed.

Source: kubernetes pkg/controller/nodelifecycle (monitorNodeHealth).
Differs: one timer per daemon, which fires when its Lease expires, instead of a periodic check of all nodes.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from prometheus_client import Gauge

from kruise_probe.api.names import node_of_agent_lease
from kruise_probe.controllers.caches import Caches
from kruise_probe.controllers.mapping.nodes import enqueue_pods_on
from kruise_probe.controllers.queues import Queues
from kruise_probe.runtime import Lease, Priority, Result

MARGIN_SECONDS: Final = 0.1
"""Added to the expiry, so that rounding never fires the timer before it."""

_stale_nodes: Final = Gauge(
    "kruise_probe_agents_stale",
    "Nodes whose daemon let its Lease expire and reports nothing.",
)


class LeaseEvents:
    """Records renewals. One in time only updates a dictionary: the timer at the old expiry is still set.

    A change that makes the Lease expire earlier enqueues the check at once.
    """

    def __init__(self, caches: Caches, queues: Queues, *, now: Callable[[], datetime]) -> None:
        self._caches = caches
        self._queues = queues
        self._now = now

    def on_add(self, obj: Lease, is_initial: bool) -> None:
        node = node_of_agent_lease(obj.key.name)
        if node:
            self._caches.renewals.observe(node, obj, self._now())
            self._queues.enqueue_lease(node, Priority.LOW if is_initial else Priority.NORMAL)

    def on_update(self, old: Lease, new: Lease) -> None:
        node = node_of_agent_lease(new.key.name)
        if not node:
            return
        before = self._caches.renewals.get(node)
        self._caches.renewals.observe(node, new, self._now())
        after = self._caches.renewals.get(node)
        sooner = before is None or after is None or after.expires_at < before.expires_at
        if sooner or node in self._caches.stale_nodes:
            self._queues.enqueue_lease(node)

    def on_delete(self, last_known: Lease) -> None:
        node = node_of_agent_lease(last_known.key.name)
        if node:
            self._caches.renewals.forget(node)
            self._queues.enqueue_lease(node)


class LeaseReconciler:
    """Checks a node when the Lease of its daemon expires; enqueues the pods of a node that became or ceased to be stale."""

    def __init__(self, caches: Caches, queues: Queues, *, now: Callable[[], datetime]) -> None:
        self._caches = caches
        self._queues = queues
        self._now = now

    async def reconcile(self, node: str) -> Result | None:
        caches = self._caches
        # First, so that an expiry between two looks at the clock causes another check instead of none.
        expired = caches.is_expired(node)
        stale = caches.node(node) is not None and bool(caches.stale_message(node))
        if caches.stale_nodes.confirm(node, stale=stale):
            _stale_nodes.set(len(caches.stale_nodes))
            enqueue_pods_on(node, caches, self._queues)
        renewal = caches.renewals.get(node)
        if renewal is None or expired:
            return None
        return Result((renewal.expires_at - self._now()).total_seconds() + MARGIN_SECONDS)
