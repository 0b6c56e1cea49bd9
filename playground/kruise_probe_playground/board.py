"""Watches pods, markers, node reports and events of a playground, and reports changes.

Contains the informers of the live view and of the check; `rows` and `ticker` compute what is shown.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, KubeObject, Resource
from kruise_probe.api.v1alpha1 import NodePodProbe, PodProbeMarker
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe_playground.node.pods import NODE_PODS, NodePod
from kruise_probe_playground.rows import PodRow, pod_row, reports_of
from kruise_probe_playground.ticker import POD_EVENTS, Line, PodEvent, changes, event_line

T = TypeVar("T", bound=KubeObject)


class Board:
    """The current objects while `run` runs.

    `on_line` is called with a line for each change, `on_change` after any change.
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
            informer.add_event_handler(_Handler(self._refresh, self._refresh))
        self._events.add_event_handler(_Handler(self._show_event, lambda _: None))

    async def run(self) -> None:
        """Run until cancelled."""
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

    def _show_event(self, event: PodEvent) -> None:
        if event.involved_object.kind == "Pod":
            self._on_line(event_line(event))
        self._on_change()


class _Handler(Generic[T]):
    """Calls one function for added and changed objects, another for deleted ones."""

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
