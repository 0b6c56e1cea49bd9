"""No result is stale while no daemon has stopped: what daemons of hollow nodes do for that, and a watch that notices."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from support.background import background

from kruise_probe.api.names import REASON_DAEMON_STALE, SYSTEM_NAMESPACE
from kruise_probe.api.node_pod_probe import NodePodProbe
from kruise_probe.api.pods import Pod
from kruise_probe.api.resources import NODE_POD_PROBES, PODS
from kruise_probe.api.times import utc_now
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.daemon.heartbeat import RENEW_SECONDS, Heartbeat
from kruise_probe.informers.shared_informer import SharedInformer


class PodHandler(ABC):
    """An event handler that observes each version of each pod."""

    def on_add(self, obj: Pod, is_initial: bool) -> None:
        self.observe(obj)

    def on_update(self, old: Pod, new: Pod) -> None:
        self.observe(new)

    def on_delete(self, last_known: Pod) -> None:
        self.observe(last_known)

    @abstractmethod
    def observe(self, pod: Pod) -> None: ...


class StaleConditions(PodHandler):
    """`seen` are the messages of all conditions with the reason ProbeDaemonStale."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def observe(self, pod: Pod) -> None:
        for condition in pod.conditions:
            if condition.reason == REASON_DAEMON_STALE:
                self.seen.add(f"{pod.key}: {condition.message}")


@asynccontextmanager
async def nothing_is_stale(client: RestClient, namespace: str) -> AsyncIterator[None]:
    """Fail if a pod of the namespace has a stale condition within the block."""
    informer = SharedInformer(ResourceListerWatcher(client, PODS, namespace), name="pods")
    stale = StaleConditions()
    informer.add_event_handler(stale)
    async with background(informer.run()):
        try:
            yield
        finally:
            assert not stale.seen, sorted(stale.seen)[:5]


class Heartbeats:
    """The Leases of hollow nodes, renewed by the heartbeat of the product. It sees the entries of the nodes."""

    def __init__(self, client: RestClient, nodes: Iterable[str]) -> None:
        self._nodes: dict[str, Heartbeat] = {}
        for node in nodes:
            self._nodes[node] = Heartbeat(
                client=client,
                node_name=node,
                system_namespace=SYSTEM_NAMESPACE,
                renew_seconds=RENEW_SECONDS,
                now=utc_now,
            )
        self._informer = SharedInformer(
            ResourceListerWatcher(client, NODE_POD_PROBES), name="nodepodprobes"
        )
        self._informer.add_event_handler(self)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informer.run())
            await self._informer.wait_for_sync()
            for heartbeat in self._nodes.values():
                group.create_task(heartbeat.run())

    def on_add(self, obj: NodePodProbe, is_initial: bool) -> None:
        self._nodes[obj.key.name].observe(obj)

    def on_update(self, old: NodePodProbe, new: NodePodProbe) -> None:
        self._nodes[new.key.name].observe(new)

    def on_delete(self, last_known: NodePodProbe) -> None:
        self._nodes[last_known.key.name].observe(None)
