"""Wiring of a manager: five informers, four controllers, and the event handlers between them.

Source: controller-runtime pkg/builder; Kruise pkg/controller/controllers.go.
Differs: everything is wired by hand in one place.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import NamedTuple

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.pods import Pod
from kruise_probe.client.rest import RestClient
from kruise_probe.controllers.agents import AgentReconciler
from kruise_probe.controllers.caches import Caches, Informers, build_informers
from kruise_probe.controllers.manager import Cache, Runnable
from kruise_probe.controllers.mapping.keys import Keys, Stagger
from kruise_probe.controllers.mapping.markers import MarkerEvents
from kruise_probe.controllers.mapping.node_pod_probes import NodePodProbeEvents
from kruise_probe.controllers.mapping.nodes import LeaseEvents, NodeEvents, wake_pods
from kruise_probe.controllers.mapping.pods import PodEvents
from kruise_probe.controllers.markers.pace import CensusPace
from kruise_probe.controllers.markers.reconciler import MarkerReconciler, Recorder
from kruise_probe.controllers.nodes.reconciler import NodeReconciler
from kruise_probe.controllers.pods.marking import Changes
from kruise_probe.controllers.pods.reconciler import PodReconciler
from kruise_probe.controllers.pods.write_limits import WriteLimits
from kruise_probe.controllers.residue import touches
from kruise_probe.controllers.writer import Writer
from kruise_probe.workqueue.controller import Controller
from kruise_probe.workqueue.queue import WorkQueue

MARKER_CONTROLLER = "podprobemarker"
NODE_CONTROLLER = "nodepodprobe"
POD_CONTROLLER = "podmarks"
AGENT_CONTROLLER = "agents"


_namespace_of = attrgetter("namespace")
"""Group of a pod's or marker's key: the queues serve namespaces in turn."""


class Options(NamedTuple):
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
    client: RestClient, recorder: Recorder, options: Options, *, now: Callable[[], datetime]
) -> Product:
    """Wires everything over one client; starts nothing. Call it within the running loop."""
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
    recorder: Recorder,
    options: Options,
    *,
    now: Callable[[], datetime],
) -> Product:
    """Wires everything over the given informers; see `build`."""
    caches = Caches(
        informers, namespace=options.namespace, allowed_labels=options.allowed_labels, now=now
    )
    marker_queue: WorkQueue[NamespacedName] = WorkQueue(
        name=MARKER_CONTROLLER, group_of=_namespace_of
    )
    pace = CensusPace(marker_queue)
    keys = Keys(
        pods=WorkQueue(name=POD_CONTROLLER, group_of=_namespace_of),
        nodes=WorkQueue(name=NODE_CONTROLLER),
        agents=WorkQueue(name=AGENT_CONTROLLER),
        census=pace,
        stagger=Stagger(),
    )

    def nodes_changed(markers: Iterable[NamespacedName]) -> None:
        for each in markers:
            pace.request(each)

    def refusal_changed(pod: Pod) -> None:
        deleting = caches.matching.deleting(pod.namespace).values()
        keys.enqueue_marker_status({*caches.matching.markers_of(pod), *deleting})

    def answered(pod: Pod, changes: Changes) -> None:
        deleting = caches.matching.deleting(pod.namespace).values()
        waiting = [each for each in deleting if touches(changes, each)]
        if waiting:
            keys.enqueue_node_after(pod.node)
            keys.enqueue_marker_status(waiting)

    def room_changed(pods: Iterable[NamespacedName]) -> None:
        for each in pods:
            keys.pod(each)

    nodes = NodeReconciler(caches, writer, on_outcome=nodes_changed, on_room=room_changed)
    pods = PodReconciler(
        caches,
        writer,
        limits=WriteLimits(message_interval_seconds=options.message_update_interval_seconds),
        serverless=options.serverless,
        on_refusal=refusal_changed,
        on_answer=answered,
        no_room=nodes.no_room,
        now=now,
    )
    agents = AgentReconciler(caches, on_change=lambda node: wake_pods(caches, keys, node), now=now)
    markers = MarkerReconciler(
        caches,
        writer,
        pace=pace,
        nodes=nodes,
        pods=pods,
        recorder=recorder,
        serverless=options.serverless,
        now=now,
    )
    _connect(informers, caches, keys, pods, agents, now)
    return Product(
        informers=informers,
        caches=tuple(informers),
        controllers=(
            Controller(
                name=NODE_CONTROLLER,
                queue=keys.nodes,
                reconcile=nodes.reconcile,
                workers=options.node_workers,
            ),
            Controller(
                name=POD_CONTROLLER,
                queue=keys.pods,
                reconcile=pods.reconcile,
                workers=options.pod_workers,
            ),
            Controller(
                name=MARKER_CONTROLLER,
                queue=marker_queue,
                reconcile=markers.reconcile,
                workers=options.marker_workers,
            ),
            Controller(
                name=AGENT_CONTROLLER, queue=keys.agents, reconcile=agents.reconcile, workers=1
            ),
        ),
    )


def _connect(
    informers: Informers,
    caches: Caches,
    keys: Keys,
    pods: PodReconciler,
    agents: AgentReconciler,
    now: Callable[[], datetime],
) -> None:
    informers.markers.add_event_handler(MarkerEvents(caches, keys))
    informers.pods.add_event_handler(
        PodEvents(caches, keys, state_changed=pods.state_changed, gone=pods.gone)
    )
    informers.nodes.add_event_handler(NodeEvents(caches, keys))
    informers.node_pod_probes.add_event_handler(
        NodePodProbeEvents(caches, keys, result_seen=pods.result_seen, is_silent=agents.is_silent)
    )
    informers.leases.add_event_handler(
        LeaseEvents(caches, keys, is_silent=agents.is_silent, now=now)
    )
