"""Wiring of a manager: five informers, the event handlers, four controllers and the queues between them.

Source: controller-runtime pkg/builder; Kruise pkg/controller/controllers.go.
Differs: everything is wired by hand in one place.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from kruise_probe.client.rest import RestClient
from kruise_probe.controllers.caches import Caches, Informers, build_informers
from kruise_probe.controllers.daemon_leases import LeaseEvents, LeaseReconciler
from kruise_probe.controllers.mapping.markers import MarkerEvents
from kruise_probe.controllers.mapping.nodes import NodeEvents, NodePodProbeEvents
from kruise_probe.controllers.mapping.pods import PodEvents
from kruise_probe.controllers.markers.reconciler import MarkerReconciler, WarningRecorder
from kruise_probe.controllers.nodes.reconciler import NodeReconciler
from kruise_probe.controllers.pods.reconciler import PodReconciler
from kruise_probe.controllers.pods.write_limits import WriteLimits
from kruise_probe.controllers.queues import Queues
from kruise_probe.controllers.writes import Writer, WriteResults
from kruise_probe.manager.runnables import Cache, Runnable
from kruise_probe.workqueue.controller import Controller


class ManagerOptions(NamedTuple):
    """Options of the command line.

    Attributes:
        namespace: the only namespace to manage; empty for all.
        allowed_labels: reserved label keys that policies may write.
        serverless: gate `EnablePodProbeMarkerOnServerless`.
        marker_workers, node_workers: concurrent reconciles of markers and of nodes.
        pod_workers: concurrent reconciles of pods; they keep as many requests in flight as the client allows.
        message_update_interval_seconds: between writes of one pod that change only messages, after a burst.
        resync_seconds: the resync period; 0 disables the resync.
    """

    system_namespace: str
    namespace: str = ""
    allowed_labels: frozenset[str] = frozenset()
    serverless: bool = False
    marker_workers: int = 4
    node_workers: int = 48
    pod_workers: int = 48
    message_update_interval_seconds: float = 10.0
    resync_seconds: float = 600.0


class Product(NamedTuple):
    """Parts of a `Manager`. Readiness checks use `caches` too; only the leader runs `controllers`."""

    informers: Informers
    caches: Sequence[Cache]
    controllers: Sequence[Runnable]


def build(
    client: RestClient,
    recorder: WarningRecorder,
    options: ManagerOptions,
    *,
    now: Callable[[], datetime],
) -> Product:
    """Wire everything over one client; start nothing. Call it within the running loop."""
    informers = build_informers(
        client,
        namespace=options.namespace,
        system_namespace=options.system_namespace,
        resync_seconds=options.resync_seconds,
    )
    return build_over(informers, client, recorder, options, now=now)


def build_over(
    informers: Informers,
    writer: Writer,
    recorder: WarningRecorder,
    options: ManagerOptions,
    *,
    now: Callable[[], datetime],
) -> Product:
    """Wire everything over the given informers; see `build`."""
    caches = Caches(
        informers, namespace=options.namespace, allowed_labels=options.allowed_labels, now=now
    )
    queues = Queues()
    limits = WriteLimits(message_interval_seconds=options.message_update_interval_seconds)
    results = WriteResults(caches)

    informers.markers.add_event_handler(MarkerEvents(caches, queues))
    informers.pods.add_event_handler(PodEvents(caches, queues, limits, results))
    informers.nodes.add_event_handler(NodeEvents(caches, queues))
    informers.node_pod_probes.add_event_handler(NodePodProbeEvents(caches, queues, limits))
    informers.leases.add_event_handler(LeaseEvents(caches, queues, now=now))

    nodes = NodeReconciler(caches, writer, queues, results=results)
    pods = PodReconciler(
        caches,
        writer,
        queues,
        limits=limits,
        results=results,
        serverless=options.serverless,
        now=now,
    )
    markers = MarkerReconciler(
        caches,
        writer,
        queues,
        results=results,
        recorder=recorder,
        serverless=options.serverless,
        now=now,
    )
    leases = LeaseReconciler(caches, queues, now=now)
    return Product(
        informers=informers,
        caches=tuple(informers),
        controllers=(
            Controller(queue=queues.nodes, reconcile=nodes.reconcile, workers=options.node_workers),
            Controller(queue=queues.pods, reconcile=pods.reconcile, workers=options.pod_workers),
            Controller(
                queue=queues.markers, reconcile=markers.reconcile, workers=options.marker_workers
            ),
            Controller(queue=queues.leases, reconcile=leases.reconcile, workers=1),
        ),
    )
