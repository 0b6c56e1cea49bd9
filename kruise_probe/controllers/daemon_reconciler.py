"""Detects daemons that stop or resume showing signs of life. Key: the node's name.

Decides nothing about pods: it only enqueues them when what is known of their daemon has changed.

Source: kubernetes pkg/controller/nodelifecycle (monitorNodeHealth).
Differs: one timer per daemon instead of a periodic check of all nodes. Before a daemon counts as silent, its Lease is read: a
watch can be silent while the server works.
"""

import asyncio
import math
from typing import Final

from prometheus_client import Gauge

from kruise_probe.api.errors import KubeError, NotFound
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import daemon_lease_name
from kruise_probe.api.node_pod_probe import NodePodProbe
from kruise_probe.api.resources import LEASES
from kruise_probe.api.times import loop_time
from kruise_probe.client.rest import RestClient
from kruise_probe.controllers.daemon_leases import (
    STALE_SECONDS,
    Daemon,
    Findings,
    Liveness,
    is_outlived,
)
from kruise_probe.controllers.state import State
from kruise_probe.workqueue.controller import Result

MARGIN_SECONDS: Final = 0.1
"""Added to a timer, so that rounding never fires it early."""
READ_SECONDS: Final = 10.0
"""Deadline of the read of a Lease."""

_stale_nodes: Final = Gauge(
    "kruise_probe_daemons_stale",
    "Nodes with probes whose daemon has stopped showing signs of life.",
)
_absent_nodes: Final = Gauge(
    "kruise_probe_daemons_absent",
    "Nodes with probes that never showed a sign of a daemon.",
)

_ALIVE: Final[Findings] = (Liveness.ALIVE, ())


class DaemonReconciler:
    """Decides that a daemon is silent; enqueues the pods of a node when what is known of its daemon changed."""

    def __init__(self, state: State, client: RestClient) -> None:
        self._state = state
        self._client = client
        self._leases = state.leases
        self._published: dict[str, Findings] = {}
        """By node, what its pods were enqueued for; only what differs from `_ALIVE`."""
        self._reads_fail = False
        self._recovered_at = -math.inf

    async def reconcile(self, node: str) -> Result | None:
        daemon = self._leases.daemons.get(node)
        if self._state.node(node) is None:
            self._leases.drop(node)
            self._publish(node, _ALIVE)
            return None
        if daemon is None:
            return None
        stored = self._state.node_pod_probe(node)
        if daemon.is_first_sight and is_outlived(stored, daemon.renewed):
            daemon.kruises = True
            daemon.silent = False
            daemon.doubted = False
        if stored is None or not stored.spec.pod_probes:
            # A daemon without entries need not show any life. Results that a silent one left stay stale until it does.
            self._publish(node, _ALIVE)
            if stored is None or not stored.results:
                daemon.silent = False
                daemon.doubted = False
            return None
        self._publish(node, daemon.findings)
        if daemon.silent or daemon.kruises:
            return None
        wait = self._seconds_left(daemon)
        if wait <= 0:
            await self._read(node, stored)
            wait = self._seconds_left(daemon)
        if wait > 0:
            return Result(wait + MARGIN_SECONDS)
        is_ours = daemon.renewed or stored.status is None
        if is_ours and not daemon.kruises:
            daemon.silent = True
            self._publish(node, daemon.findings)
        return None

    def _publish(self, node: str, findings: Findings) -> None:
        """Enqueue the pods of the node if they were not enqueued for these findings."""
        published = self._published
        if published.get(node, _ALIVE) == findings:
            return
        if findings == _ALIVE:
            del published[node]
        else:
            published[node] = findings
        daemons = [liveness for liveness, _ in published.values()]
        stale = daemons.count(Liveness.STALE) + daemons.count(Liveness.DOUBTED)
        absent = daemons.count(Liveness.ABSENT)
        _stale_nodes.set(stale)
        _absent_nodes.set(absent)
        self._state.enqueue_pods_on(node)

    def _seconds_left(self, daemon: Daemon) -> float:
        """Seconds until the daemon is silent. Time before Leases could be read again, after an outage, does not count."""
        now = loop_time()
        watched_since = now - self._state.informers.leases.seconds_since_outage()
        counts_from = max(daemon.counts_from, watched_since, self._recovered_at)
        return counts_from + STALE_SECONDS - now

    async def _read(self, node: str, stored: NodePodProbe | None) -> None:
        """Read the Lease, as the watch may have missed a renewal.

        Raises:
            KubeError, TimeoutError: it cannot be read.
        """
        namespace = self._state.options.system_namespace
        key = NamespacedName(namespace, daemon_lease_name(node))
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
            self._recovered_at = loop_time()
        if lease is None:
            self._leases.forget_lease(node, stored)
        else:
            self._leases.observe_lease(node, lease, loop_time())
