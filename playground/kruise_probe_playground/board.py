"""Follows a playground for the live view and the check: what `status` reads, the whole pods, and their events."""

import asyncio
from collections.abc import Callable, Sequence

from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.cli.reading import Reader
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.inspection.snapshot import Snapshot
from kruise_probe.inspection.status import status_view
from kruise_probe_playground.node.pods import NODE_PODS
from kruise_probe_playground.problems import ProblemSummary, summaries
from kruise_probe_playground.rows import PodRow, pod_rows
from kruise_probe_playground.ticker import POD_EVENTS, Line, PodEvent, changes, event_line

SETTLE_SECONDS = 0.2
"""A result reaches the pod in a second write. After this delay both are one change."""


def reader_of(client: RestClient) -> Reader:
    """A reader of all namespaces."""
    return Reader(client, namespace="", system_namespace=SYSTEM_NAMESPACE)


class Board:
    """The current objects while `run` runs.

    Args:
        on_line: called with a line for each change.

    Attributes:
        changed: set after every change.
        snapshot: None before the first.
        rows: by namespace and name.
        problems: those that need action.
    """

    snapshot: Snapshot | None = None
    rows: Sequence[PodRow] = ()
    problems: Sequence[ProblemSummary] = ()

    def __init__(self, client: RestClient, on_line: Callable[[Line], None] | None = None) -> None:
        self.changed = asyncio.Event()
        self._client = client
        self._on_line = on_line or (lambda _: None)
        self._stale = asyncio.Event()
        self._pods = SharedInformer(ResourceListerWatcher(client, NODE_PODS), name="pods")
        self._events = SharedInformer(ResourceListerWatcher(client, POD_EVENTS), name="events")
        self._pods.add_event_handler(self)
        self._events.add_event_handler(self)

    async def run(self) -> None:
        """Run until cancelled."""
        reader = reader_of(self._client)
        first = await reader.read()
        async with reader.follow(first) as following, asyncio.TaskGroup() as group:
            self._stale = following.changed
            for informer in (self._pods, self._events):
                group.create_task(informer.run(), name=f"board {informer.name}")
            while True:
                following.changed.clear()
                self._refresh(following.snapshot())
                await following.changed.wait()
                await asyncio.sleep(SETTLE_SECONDS)

    @property
    def events(self) -> list[PodEvent]:
        return list(self._events.lister.list())

    def on_add(self, obj: object, is_initial: bool) -> None:
        if isinstance(obj, PodEvent) and _has_own_line(obj):
            self._on_line(event_line(obj))
        self._stale.set()

    def on_update(self, old: object, new: object) -> None:
        self.on_add(new, False)

    def on_delete(self, last_known: object) -> None:
        self._stale.set()

    def _refresh(self, snapshot: Snapshot) -> None:
        view = status_view(snapshot, snapshot.markers, ())
        before = {each.title: each for each in self.rows}
        self.rows = pod_rows(self._pods.lister.list(), view)
        after = {each.title: each for each in self.rows}
        for title in sorted(before.keys() | after.keys()):
            for line in changes(before.get(title), after.get(title)):
                self._on_line(line)
        self.problems = list(summaries(view))
        self.snapshot = snapshot
        self.changed.set()


def _has_own_line(event: PodEvent) -> bool:
    """Events of kruise-probe repeat a new state, which has a line already."""
    return event.involved_object.kind == "Pod" and not event.reason.startswith("KruiseProbe")
