"""Detects daemons that stop or resume renewing their Lease. Key: the node's name.

Decides nothing about pods: it only enqueues them when the verdict on their node has changed.

Source: kubernetes pkg/controller/nodelifecycle (monitorNodeHealth).
Differs: one timer per daemon, which fires when its Lease expires, instead of a periodic check of all nodes. An expiry
that the watch did not show is checked by reading the Lease: a watch can be silent while the server works.
"""

import asyncio
import math
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import structlog
from prometheus_client import Gauge

from kruise_probe.api.core import Lease
from kruise_probe.api.errors import ConnectionFailed, Forbidden, KubeError, NotFound
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.names import daemon_lease_name, node_of_daemon_lease
from kruise_probe.api.resources import LEASES
from kruise_probe.client.interfaces import Getter
from kruise_probe.controllers.caches import Caches
from kruise_probe.controllers.daemon_leases import Renewal, Verdict, newest_result_without_hash
from kruise_probe.controllers.mapping.nodes import enqueue_pods_on
from kruise_probe.controllers.queues import Queues
from kruise_probe.workqueue.controller import Result
from kruise_probe.workqueue.priority import Priority

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

MARGIN_SECONDS: Final = 0.1
"""Added to the expiry, so that rounding never fires the timer before it."""
RECOVERY_SECONDS: Final = 30.0
"""After the manager could not reach the API server, daemons have this long to renew their Leases."""
READ_SECONDS: Final = 10.0
"""Deadline of the read of a Lease."""

_stale_nodes: Final = Gauge(
    "kruise_probe_daemons_stale",
    "Nodes whose daemon let its Lease expire and reports nothing.",
)


class LeaseEvents:
    """Records renewals. One in time only updates a dictionary: the timer at the old expiry is still set."""

    def __init__(self, caches: Caches, queues: Queues, *, now: Callable[[], datetime]) -> None:
        self._leases = caches.leases
        self._queues = queues
        self._now = now

    def on_add(self, obj: Lease, is_initial: bool) -> None:
        node = node_of_daemon_lease(obj.key.name)
        if node:
            self._leases.observe(node, obj, self._now())
            self._queues.enqueue_lease(node, Priority.LOW if is_initial else Priority.NORMAL)

    def on_update(self, old: Lease, new: Lease) -> None:
        node = node_of_daemon_lease(new.key.name)
        if not node or old is new:  # a resync tells nothing new
            return
        before, now = self._leases.get(node), self._now()
        self._leases.observe(node, new, now)
        after = self._leases.get(node)
        has_timer = before is not None and now < before.expires_at
        if not has_timer or before is None or after is None or after.expires_at < before.expires_at:
            self._queues.enqueue_lease(node)

    def on_delete(self, last_known: Lease) -> None:
        node = node_of_daemon_lease(last_known.key.name)
        if node:
            self._leases.forget(node)
            self._queues.enqueue_lease(node)


class LeaseReconciler:
    """Decides on a node when the Lease of its daemon expires; enqueues the pods of the node if the verdict changed.

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
        self._leases = caches.leases
        self._client = client
        self._queues = queues
        self._system_namespace = system_namespace
        self._now = now
        self._reads_fail = False
        self._recovered_at = -math.inf
        self._may_read = True

    async def reconcile(self, node: str) -> Result | None:
        renewal, now = self._leases.get(node), self._now()
        if renewal is None or self._caches.node(node) is None:
            self._decide(node, Verdict.FRESH)
            return None
        if now < renewal.expires_at:
            self._decide(node, Verdict.FRESH)
            return Result((renewal.expires_at - now).total_seconds() + MARGIN_SECONDS)
        stored = self._caches.node_pod_probes.get(NamespacedName("", node))
        if renewal.is_outlived(newest_result_without_hash(stored.status if stored else None, now)):
            self._decide(node, Verdict.FRESH)
            return None
        # Later again: a result of a clock that is ahead proves nothing until its time has come.
        check_again = Result(renewal.duration.total_seconds())
        if self._leases.verdict(node) is Verdict.STALE:
            return check_again
        self._decide(node, Verdict.UNDECIDED)
        wait = self._seconds_to_wait(renewal, now)
        if wait > 0:
            return Result(wait + MARGIN_SECONDS, finished=False)
        if await self._is_renewed(node, renewal) or self._seconds_to_wait(renewal, now) > 0:
            return Result(0.0, finished=False)
        self._decide(node, Verdict.STALE)
        return check_again

    def _decide(self, node: str, verdict: Verdict) -> None:
        if self._leases.decide(node, verdict):
            _stale_nodes.set(self._leases.stale_nodes())
            if verdict is not Verdict.UNDECIDED:
                enqueue_pods_on(node, self._caches, self._queues)

    def _seconds_to_wait(self, renewal: Renewal, now: datetime) -> float:
        """Seconds in which a daemon that works would renew the Lease; 0.0 or less if they are over.

        After an outage of the API server: daemons could not renew their Leases either.
        """
        since_outage = min(
            asyncio.get_running_loop().time() - self._recovered_at,
            self._caches.seconds_since_lease_outage(),
        )
        return max(
            (renewal.undecided_until - now) / timedelta(seconds=1), RECOVERY_SECONDS - since_outage
        )

    async def _is_renewed(self, node: str, known: Renewal) -> bool:
        """Read the Lease, as the watch may have missed a renewal. Return whether it is not the known one any more.

        Raises:
            KubeError: it cannot be read.
        """
        key = NamespacedName(self._system_namespace, daemon_lease_name(node))
        try:
            async with asyncio.timeout(READ_SECONDS):
                lease = await self._client.get(LEASES, key)
        except NotFound:
            lease = None
        except Forbidden as error:
            self._report_forbidden(error)
            return self._leases.get(node) != known
        except (KubeError, TimeoutError) as error:
            self._reads_fail = True
            why = str(error) or f"no response within {READ_SECONDS:g} s"
            raise ConnectionFailed(f"cannot read Lease {key}: {why}") from error
        if self._reads_fail:
            self._reads_fail = False
            self._recovered_at = asyncio.get_running_loop().time()
        if self._leases.get(node) == known:  # else an event came first
            if lease is None:
                self._leases.forget(node)
            else:
                self._leases.observe(node, lease, self._now())
        return self._leases.get(node) != known

    def _report_forbidden(self, error: Forbidden) -> None:
        if self._may_read:
            self._may_read = False
            _log.warning(
                "a Lease expires without a read, as its read is forbidden; add get to the rule for leases",
                error=str(error),
            )
