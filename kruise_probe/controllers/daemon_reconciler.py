"""Detects daemons that stop or resume renewing their Lease. Key: the node's name.

Decides nothing about pods: it only enqueues them when the verdict on their node has changed.

Source: kubernetes pkg/controller/nodelifecycle (monitorNodeHealth).
Differs: one timer per daemon, which fires when its Lease expires, instead of a periodic check of all nodes. An expiry
that the watch did not show is checked by reading the Lease: a watch can be silent while the server works.
"""

import asyncio
import math
from datetime import datetime, timedelta
from typing import Final

from prometheus_client import Gauge

from kruise_probe.api.errors import KubeError, NotFound
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import daemon_lease_name
from kruise_probe.api.resources import LEASES
from kruise_probe.client.rest import RestClient
from kruise_probe.controllers.daemon_leases import Renewal, Verdict, newest_result_without_hash
from kruise_probe.controllers.state import State
from kruise_probe.workqueue.controller import Result

MARGIN_SECONDS: Final = 0.1
"""Added to the expiry, so that rounding never fires the timer before it."""
RECOVERY_SECONDS: Final = 30.0
"""After the manager could not reach the API server, daemons have this long to renew their Leases."""
READ_SECONDS: Final = 10.0
"""Deadline of the read of a Lease."""

_stale_nodes: Final = Gauge(
    "kruise_probe_daemons_stale",
    "Nodes whose daemon has not renewed its Lease in time.",
)


class DaemonReconciler:
    """Decides on a node when the Lease of its daemon expires; enqueues the pods of the node if the verdict changed."""

    def __init__(self, state: State, client: RestClient) -> None:
        self._state, self._client = state, client
        self._leases = state.leases
        self._reads_fail = False
        self._recovered_at = -math.inf
        self._leads = False

    async def reconcile(self, node: str) -> Result | None:
        renewal, now = self._leases.renewals.get(node), self._state.now()
        if not self._leads:
            # A standby decides nothing: without a verdict, pods of stale nodes would be written as fresh.
            self._leads = True
            expired = [name for name, it in self._leases.renewals.items() if it.expires_at <= now]
            self._leases.doubted.update(dict.fromkeys(expired, Verdict.UNDECIDED))
        if renewal is None or self._state.node(node) is None:
            self._decide(node, Verdict.FRESH)
            return None
        left = (renewal.expires_at - now).total_seconds()
        if left > 0:
            self._decide(node, Verdict.FRESH)
            return Result(left + MARGIN_SECONDS)
        # Again later: a result of a clock that is ahead proves nothing until its time has come.
        check_again = Result(renewal.duration.total_seconds())
        stored = self._state.node_pod_probes.get(NamespacedName("", node))
        if renewal.is_outlived(newest_result_without_hash(stored.status if stored else None, now)):
            self._decide(node, Verdict.FRESH)
            return check_again
        if self._leases.doubted.get(node) is Verdict.STALE:
            return check_again
        self._decide(node, Verdict.UNDECIDED)
        wait = self._seconds_to_wait(renewal, now)
        if wait > 0:
            return Result(wait + MARGIN_SECONDS, finished=False)
        await self._read(node, renewal)
        if self._leases.renewals.get(node) != renewal or self._seconds_to_wait(renewal, now) > 0:
            return Result(0.0, finished=False)
        self._decide(node, Verdict.STALE)
        return check_again

    def _decide(self, node: str, verdict: Verdict) -> None:
        if self._leases.decide(node, verdict):
            _stale_nodes.set([*self._leases.doubted.values()].count(Verdict.STALE))
            if verdict is not Verdict.UNDECIDED:
                self._state.enqueue_pods_on(node)

    def _seconds_to_wait(self, renewal: Renewal, now: datetime) -> float:
        """Seconds in which a daemon that works would renew the Lease; 0.0 or less if they are over.

        After an outage of the API server: daemons could not renew their Leases either.
        """
        since_outage = min(
            asyncio.get_running_loop().time() - self._recovered_at,
            self._state.informers.leases.seconds_since_outage(),
        )
        return max(
            (renewal.undecided_until - now) / timedelta(seconds=1), RECOVERY_SECONDS - since_outage
        )

    async def _read(self, node: str, known: Renewal) -> None:
        """Read the Lease, as the watch may have missed a renewal.

        Raises:
            KubeError, TimeoutError: it cannot be read.
        """
        key = NamespacedName(self._state.options.system_namespace, daemon_lease_name(node))
        try:
            async with asyncio.timeout(READ_SECONDS):
                lease = await self._client.get(LEASES, key)
        except NotFound:
            lease = None
        except (KubeError, TimeoutError):
            self._reads_fail = True
            raise
        if self._reads_fail:
            self._reads_fail = False
            self._recovered_at = asyncio.get_running_loop().time()
        if self._leases.renewals.get(node) != known:
            return  # An event came first.
        if lease is None:
            self._leases.renewals.pop(node, None)
        else:
            self._leases.observe(node, lease, self._state.now())
