"""Wiring of the product: five informers, the event handlers, four controllers and the queues between them.

Source: Kruise pkg/controller/controllers.go.
Differs: the queues are shared, because an event or a reconcile enqueues keys of several controllers.
"""

from typing import NamedTuple

from kruise_probe.controllers.daemon_reconciler import DaemonReconciler
from kruise_probe.controllers.events import (
    LeaseEvents,
    MarkerEvents,
    NodeEvents,
    NodePodProbeEvents,
    PodEvents,
)
from kruise_probe.controllers.markers.reconciler import MarkerReconciler
from kruise_probe.controllers.nodes.reconciler import NodeReconciler
from kruise_probe.controllers.pods.reconciler import PodReconciler
from kruise_probe.controllers.queues import Queues
from kruise_probe.controllers.state import Informers, State, informers_of
from kruise_probe.manager.manager import Manager
from kruise_probe.workqueue.controller import Controller


class ManagerOptions(NamedTuple):
    """Options of the command line.

    Attributes:
        allowed_labels: reserved label keys that policies may write.
        serverless: gate `EnablePodProbeMarkerOnServerless`.
        marker_workers, node_workers: concurrent reconciles of markers and of nodes.
        pod_workers: concurrent reconciles of pods; they keep as many requests in flight as the client allows.
        message_update_interval_seconds: between writes of one pod that change only messages, after a burst.
    """

    system_namespace: str
    allowed_labels: frozenset[str] = frozenset()
    serverless: bool = False
    marker_workers: int = 4
    node_workers: int = 48
    pod_workers: int = 48
    message_update_interval_seconds: float = 10.0


def build(manager: Manager, options: ManagerOptions) -> Informers:
    """Add the controllers to `manager`; start nothing."""
    informers = informers_of(manager, system_namespace=options.system_namespace)
    state = State(
        informers,
        namespace=manager.namespace,
        allowed_labels=options.allowed_labels,
        serverless=options.serverless,
        message_interval_seconds=options.message_update_interval_seconds,
        now=manager.now,
    )
    queues = Queues()
    informers.markers.add_event_handler(MarkerEvents(state, queues))
    informers.pods.add_event_handler(PodEvents(state, queues))
    informers.nodes.add_event_handler(NodeEvents(state, queues))
    informers.node_pod_probes.add_event_handler(NodePodProbeEvents(state, queues, manager.leads))
    informers.leases.add_event_handler(LeaseEvents(state, queues))

    client, recorder = manager.rest, manager.events
    nodes = NodeReconciler(state, queues, client)
    pods = PodReconciler(state, queues, client, recorder)
    markers = MarkerReconciler(state, queues, client, recorder)
    daemons = DaemonReconciler(state, queues, client, system_namespace=options.system_namespace)
    manager.controllers += (
        Controller(queue=queues.nodes, reconcile=nodes.reconcile, workers=options.node_workers),
        Controller(queue=queues.pods, reconcile=pods.reconcile, workers=options.pod_workers),
        Controller(
            queue=queues.markers, reconcile=markers.reconcile, workers=options.marker_workers
        ),
        Controller(queue=queues.daemons, reconcile=daemons.reconcile, workers=4),
    )
    return informers
