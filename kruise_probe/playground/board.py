"""Follows pods, markers, node reports and events of a playground, and tells what changed.

Owns the informers of the view and of the check; decides nothing: `rows` and `ticker` do.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, KubeObject, Resource
from kruise_probe.api.v1alpha1 import NodePodProbe, PodProbeMarker
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.playground.node.pods import NODE_PODS, NodePod
from kruise_probe.playground.pod_events import POD_EVENTS, PodEvent
from kruise_probe.playground.rows import PodRow, pod_row, reports_of
from kruise_probe.playground.ticker import Line, changes, event_line

T = TypeVar("T", bound=KubeObject)


class Board:
    """The state as it is seen through the API server, while `run` runs.

    `on_line` is told every change in a line; `on_change` that anything changed.
    """

    def __init__(
        self,
        client: RestClient,
        *,
        on_line: Callable[[Line], None],
        on_change: Callable[[], None],
    ) -> None:
        self._on_line = on_line
        self._on_change = on_change
        self._pods = _follow(client, NODE_PODS, "pods")
        self._markers = _follow(client, MARKERS, "markers")
        self._reports = _follow(client, NODE_POD_PROBES, "reports")
        self._events = _follow(client, POD_EVENTS, "events")
        self._rows: dict[NamespacedName, PodRow] = {}
        for informer in (self._pods, self._markers, self._reports):
            informer.add_event_handler(_Told(self._refresh, self._refresh))
        self._events.add_event_handler(_Told(self._tell_event, lambda _: None))

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in (self._pods, self._markers, self._reports, self._events):
                group.create_task(informer.run(), name=f"board {informer.name}")

    @property
    def rows(self) -> list[PodRow]:
        """By namespace and name."""
        return [self._rows[key] for key in sorted(self._rows)]

    @property
    def pods(self) -> list[NodePod]:
        return list(self._pods.lister.list())

    @property
    def markers(self) -> list[PodProbeMarker]:
        return list(self._markers.lister.list())

    @property
    def nodes(self) -> list[NodePodProbe]:
        return list(self._reports.lister.list())

    @property
    def events(self) -> list[PodEvent]:
        return list(self._events.lister.list())

    def _refresh(self, _: object) -> None:
        reports = reports_of(self.nodes)
        markers = self.markers
        rows = {pod.key: pod_row(pod, markers, reports) for pod in self._pods.lister.list()}
        for key in sorted(self._rows.keys() | rows.keys()):
            for line in changes(self._rows.get(key), rows.get(key)):
                self._on_line(line)
        self._rows = rows
        self._on_change()

    def _tell_event(self, event: PodEvent) -> None:
        if event.involved_object.kind == "Pod":
            self._on_line(event_line(event))
        self._on_change()


class _Told(Generic[T]):
    """Tells one function of every object that was added or changed, another of the removed."""

    def __init__(self, changed: Callable[[T], None], removed: Callable[[T], None]) -> None:
        self._changed = changed
        self._removed = removed

    def on_add(self, obj: T, is_initial: bool) -> None:
        self._changed(obj)

    def on_update(self, old: T, new: T) -> None:
        self._changed(new)

    def on_delete(self, last_known: T) -> None:
        self._removed(last_known)


def _follow(client: RestClient, resource: Resource[T], name: str) -> SharedInformer[T]:
    return SharedInformer(ResourceListerWatcher(client, resource), name=f"{name} of the view")
