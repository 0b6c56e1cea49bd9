"""Wiring of the product: five informers, the event handlers, five controllers and the queues between them.

Source: Kruise pkg/controller/controllers.go.
Differs: the queues are shared, because an event or a reconcile enqueues keys of several controllers.
"""

from kruise_probe.controllers.daemon_reconciler import DaemonReconciler
from kruise_probe.controllers.definitions import read_at_start
from kruise_probe.controllers.events import (
    LeaseEvents,
    MarkerEvents,
    NodeEvents,
    NodePodProbeEvents,
    PodEvents,
)
from kruise_probe.controllers.marker_reconciler import MarkerReconciler
from kruise_probe.controllers.node_reconciler import NodeReconciler
from kruise_probe.controllers.own_reads import OwnReads
from kruise_probe.controllers.pod_reconciler import PodReconciler
from kruise_probe.controllers.state import Informers, ManagerOptions, State
from kruise_probe.controllers.takeover import inherit_daemons
from kruise_probe.controllers.visit_reconciler import VisitReconciler
from kruise_probe.manager.manager import Manager
from kruise_probe.workqueue.controller import Controller


def build(manager: Manager, options: ManagerOptions) -> Informers:
    """Add the controllers to `manager`; start nothing."""
    state = State(manager, options)
    queues = state.queues
    informers = state.informers
    informers.markers.add_event_handler(MarkerEvents(state))
    informers.pods.add_event_handler(PodEvents(state))
    informers.nodes.add_event_handler(NodeEvents(state))
    informers.node_pod_probes.add_event_handler(NodePodProbeEvents(state))
    informers.leases.add_event_handler(LeaseEvents(state))

    async def read_definitions() -> None:
        pruned = await read_at_start(manager.unfenced)
        state.pruned_fields = pruned.of_nodes

    def lead() -> None:
        inherit_daemons(state)
        queues.open()

    manager.preparations.append(read_definitions)
    manager.on_lead = lead
    client = manager.rest
    own_reads = None
    if options.own_node_reads:
        own_reads = OwnReads(manager, queues)
    nodes = NodeReconciler(state, client, own_reads)
    pods = PodReconciler(state, client, manager.events)
    markers = MarkerReconciler(state, client, manager.events)
    daemons = DaemonReconciler(state, client)
    visits = VisitReconciler(state)
    visiting = Controller(queues.visits, visits.reconcile, workers=1)
    manager.services.append(visiting)
    manager.controllers += (
        Controller(queues.daemons, daemons.reconcile, workers=4),
        Controller(queues.nodes, nodes.reconcile, workers=options.node_workers),
        Controller(queues.pods, pods.reconcile, workers=options.pod_workers),
        Controller(queues.markers, markers.reconcile, workers=options.marker_workers),
    )
    return informers
