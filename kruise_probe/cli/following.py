"""Informers of what `status --watch` prints, and of the playground's live view."""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from kruise_probe.api.core import Lease, Node
from kruise_probe.api.errors import FatalError
from kruise_probe.api.kinds import KubeObject
from kruise_probe.api.v1alpha1 import NodePodProbe, PodProbeMarker
from kruise_probe.cli.query_client import DEADLINE_SECONDS
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.inspection.seen_pods import SeenPod
from kruise_probe.inspection.snapshot import Snapshot

T = TypeVar("T", bound=KubeObject)


class Informers(NamedTuple):
    """One informer of each kind; None if the user may not list it."""

    markers: SharedInformer[PodProbeMarker]
    pods: SharedInformer[SeenPod]
    nodes: SharedInformer[Node] | None
    node_pod_probes: SharedInformer[NodePodProbe] | None
    leases: SharedInformer[Lease] | None


class Following:
    """The informers of all kinds that the user may list. `changed` is set on every event."""

    def __init__(
        self, informers: Informers, *, allowed_labels: frozenset[str], now: Callable[[], datetime]
    ) -> None:
        self.changed = asyncio.Event()
        self._allowed_labels = allowed_labels
        self._now = now
        self._informers = informers
        every: tuple[SharedInformer[Any] | None, ...] = informers
        self._followed = [each for each in every if each is not None]
        for each in self._followed:
            each.add_event_handler(_ChangeHandler(self.changed))

    @property
    def runs(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        return [each.run for each in self._followed]

    async def wait_for_sync(self) -> None:
        """Wait until all informers have synced.

        Raises:
            FatalError: a watch or list failed, for example if a kind may be listed but not watched.
            TimeoutError: the server did not respond in time.
        """
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                for each in self._followed:
                    await each.wait_for_sync()
        except TimeoutError:
            for error in self._errors():
                raise FatalError(
                    f"{error}; --watch needs permission to watch what it lists"
                ) from None
            raise

    def notes(self) -> list[str]:
        """Why the objects may be stale: at most one line, because watches usually fail for the same reason."""
        return [f"not current, retrying: {error}" for error in self._errors()[:1]]

    def _errors(self) -> list[str]:
        return [each.last_error for each in self._followed if each.last_error]

    def snapshot(self) -> Snapshot:
        """The current objects of the caches."""
        informers = self._informers
        return Snapshot.of_lists(
            informers.markers.lister.list(),
            informers.pods.lister.list(),
            _listed(informers.nodes),
            _listed(informers.node_pod_probes),
            _listed(informers.leases),
            allowed_labels=self._allowed_labels,
            now=self._now(),
        )


class _ChangeHandler:
    def __init__(self, changed: asyncio.Event) -> None:
        self._changed = changed

    def on_add(self, obj: object, is_initial: bool) -> None:
        self._changed.set()

    def on_update(self, old: object, new: object) -> None:
        self._changed.set()

    def on_delete(self, last_known: object) -> None:
        self._changed.set()


def _listed(informer: SharedInformer[T] | None) -> Collection[T] | None:
    return None if informer is None else informer.lister.list()
