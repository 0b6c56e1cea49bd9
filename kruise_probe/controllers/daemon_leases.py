"""Detects daemons that stop or resume renewing their Lease. Key: the node's name.

Decides nothing about pods: it only enqueues them when the result of `staleness` has changed.

Source: kubernetes pkg/controller/nodelifecycle (monitorNodeHealth).
Differs: one timer per daemon, which fires when its Lease expires, instead of a periodic check of all nodes. An expiry
that the watch did not show is checked by reading the Lease: a watch can be silent while the server works.
"""

import asyncio
import math
from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog
from prometheus_client import Gauge

from kruise_probe.api.names import daemon_lease_name, node_of_daemon_lease
from kruise_probe.api.resources import LEASES
from kruise_probe.client.interfaces import Getter
from kruise_probe.controllers.caches import Caches
from kruise_probe.controllers.mapping.nodes import enqueue_pods_on
from kruise_probe.controllers.queues import Queues
from kruise_probe.runtime import (
    ConnectionFailed,
    Forbidden,
    KubeError,
    Lease,
    NamespacedName,
    NotFound,
    Priority,
    Result,
)

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

MARGIN_SECONDS: Final = 0.1
"""Added to the expiry, so that rounding never fires the timer before it."""
RECOVERY_SECONDS: Final = 30.0
"""After the manager could not reach the API server, daemons have this long to renew their Leases."""
CHECK_AGAIN_SECONDS: Final = 5.0
"""Between two reads of a Lease in that time."""
READ_SECONDS: Final = 10.0
"""Deadline of the read of a Lease."""

_stale_nodes: Final = Gauge(
    "kruise_probe_daemons_stale",
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
        node = node_of_daemon_lease(obj.key.name)
        if node:
            # Daemons may not have been able to renew their Leases either.
            after_outage = self._caches.seconds_since_lease_outage() < RECOVERY_SECONDS
            is_current = not (is_initial and after_outage)
            self._caches.renewals.observe(node, obj, self._now(), is_current=is_current)
            self._queues.enqueue_lease(node, Priority.LOW if is_initial else Priority.NORMAL)

    def on_update(self, old: Lease, new: Lease) -> None:
        node = node_of_daemon_lease(new.key.name)
        if not node or old is new:  # a resync tells nothing new
            return
        before, now = self._caches.renewals.get(node), self._now()
        self._caches.renewals.observe(node, new, now)
        after = self._caches.renewals.get(node)
        sooner = before is None or after is None or after.expires_at < before.expires_at
        no_timer = before is not None and before.expires_at <= now
        if sooner or no_timer or node in self._caches.stale_nodes:
            self._queues.enqueue_lease(node)

    def on_delete(self, last_known: Lease) -> None:
        node = node_of_daemon_lease(last_known.key.name)
        if node:
            self._caches.renewals.forget(node)
            self._queues.enqueue_lease(node)


class LeaseReconciler:
    """Checks a node when the Lease of its daemon expires; enqueues the pods of a node that became or ceased to be stale.

    The Leases are in `system_namespace`.
    """

    def __init__(
        self,
        caches: Caches,
        client: Getter,
        queues: Queues,
        *,
        system_namespace: str,
        now: Callable[[], datetime],
    ) -> None:
        self._caches = caches
        self._client = client
        self._queues = queues
        self._system_namespace = system_namespace
        self._now = now
        self._failed_at = -math.inf
        self._may_read = True

    async def reconcile(self, node: str) -> Result | None:
        caches = self._caches
        if caches.staleness_is_unknown(node) and not await self._observe(node):
            return Result(CHECK_AGAIN_SECONDS)
        # First, so that an expiry between two looks at the clock causes another check instead of none.
        expired = caches.is_expired(node)
        stale = caches.node(node) is not None and bool(caches.stale_message(node))
        if caches.stale_nodes.confirm(node, stale=stale):
            _stale_nodes.set(len(caches.stale_nodes))
            enqueue_pods_on(node, caches, self._queues)
        renewal = caches.renewals.get(node)
        if renewal is None or (expired and not caches.staleness_is_unknown(node)):
            return None
        return Result(max((renewal.expires_at - self._now()).total_seconds(), 0.0) + MARGIN_SECONDS)

    async def _observe(self, node: str) -> bool:
        """Read the Lease. Return False if it is unchanged and an outage is recent.

        Raises:
            KubeError: it cannot be read.
        """
        key = NamespacedName(self._system_namespace, daemon_lease_name(node))
        known = self._caches.renewals.get(node)
        try:
            async with asyncio.timeout(READ_SECONDS):
                lease = await self._client.get(LEASES, key)
        except NotFound:
            lease = None
        except Forbidden as error:
            self._report_forbidden(error)
            self._caches.renewals.accept_expiry(node, self._now())
            return True
        except (KubeError, TimeoutError) as error:
            self._failed_at = asyncio.get_running_loop().time()
            why = str(error) or f"no response within {READ_SECONDS:g} s"
            raise ConnectionFailed(f"cannot read Lease {key}: {why}") from error
        if known is None or self._caches.renewals.get(node) is not known:
            return True  # an event came first
        if lease is None:
            self._caches.renewals.forget(node)
            return True
        renewed = lease.spec.renew_time if lease.spec else None
        if renewed == known.renewed and self._outage_is_recent():
            return False
        self._caches.renewals.observe(node, lease, self._now())
        return True

    def _outage_is_recent(self) -> bool:
        """Whether the API server is or was unavailable, so that daemons could not renew their Leases either."""
        since_failed_read = asyncio.get_running_loop().time() - self._failed_at
        since_outage = self._caches.seconds_since_lease_outage()
        return min(since_failed_read, since_outage) < RECOVERY_SECONDS

    def _report_forbidden(self, error: Forbidden) -> None:
        if self._may_read:
            self._may_read = False
            _log.warning(
                "a Lease expires without a read, as its read is forbidden; add get to the rule for leases",
                error=str(error),
            )
