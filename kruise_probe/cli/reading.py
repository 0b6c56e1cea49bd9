"""Reads the objects for `status`, `explain` and `try` with the user's permissions.

Only markers and pods are required. A kind that the user may not list is left out with a note, because many users
have permissions in one namespace only.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from kruise_probe.api.errors import ApiError, FatalError, Forbidden, NotFound
from kruise_probe.api.meta import KubeObject, NamespacedName, Resource
from kruise_probe.api.resources import LEASES, MARKERS, NODE_POD_PROBES, NODES
from kruise_probe.api.v1alpha1 import PodProbeMarker
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.controllers.definitions import (
    NOTHING_PRUNED,
    PrunedFields,
    read_pruned_fields,
)
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.inspection.seen_pods import SEEN_PODS, SeenPod
from kruise_probe.inspection.snapshot import Snapshot

T = TypeVar("T", bound=KubeObject)

DEADLINE_SECONDS: Final = 30.0
"""Deadline for all initial lists together."""

_HIDDEN_WITHOUT: Final = {
    NODES.kind: "whether nodes exist or are virtual",
    NODE_POD_PROBES.kind: "the results that nodes reported; the states shown are those of pod conditions",
    LEASES.kind: "whether manager and daemons run",
}


class Following:
    """What `status --watch` and the playground's live view print: the caches of the kinds that the user may list.

    `changed` is set on every event.
    """

    def __init__(
        self,
        informers: Sequence[SharedInformer[Any] | None],
        snapshot_of: Callable[[Sequence[Iterable[Any] | None]], Snapshot],
    ) -> None:
        self.changed = asyncio.Event()
        self._informers = informers
        self._snapshot_of = snapshot_of
        self.running = [informer for informer in informers if informer is not None]
        for informer in self.running:
            informer.add_event_handler(self)

    def on_add(self, *_: object) -> None:
        self.changed.set()

    on_update = on_delete = on_add

    async def wait_for_sync(self) -> None:
        """Wait until all informers have synced.

        Raises:
            FatalError: a watch or list failed, for example if a kind may be listed but not watched.
            TimeoutError: the server did not respond in time.
        """
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                for informer in self.running:
                    await informer.wait_for_sync()
        except TimeoutError:
            for error in self._errors():
                raise FatalError(f"{error}; --watch needs permission to list and watch") from None
            raise

    def notes(self) -> list[str]:
        """Why the objects may be stale: at most one line, because watches usually fail for the same reason."""
        return [f"not current, retrying: {error}" for error in self._errors()[:1]]

    def _errors(self) -> list[str]:
        return [informer.last_error for informer in self.running if informer.last_error]

    def snapshot(self) -> Snapshot:
        """The current objects of the caches."""
        return self._snapshot_of(list(map(_cached, self._informers)))


def _cached(informer: SharedInformer[Any] | None) -> Iterable[Any] | None:
    return None if informer is None else informer.lister.list()


_KINDS: Final[tuple[Resource[Any], ...]] = (MARKERS, SEEN_PODS, NODES, NODE_POD_PROBES, LEASES)
"""In the order of `Reader._snapshot`."""


@dataclass(eq=False)
class Reader:
    """Lists objects once, or watches them.

    Attributes:
        namespace: of markers and pods; empty for all.
        allowed_labels: as the manager's flag.
        notes: what is left out.
        pruned: what the CRDs drop.
    """

    client: RestClient
    namespace: str
    system_namespace: str
    allowed_labels: frozenset[str] = frozenset()
    notes: list[str] = field(default_factory=list)
    pruned: PrunedFields = NOTHING_PRUNED

    async def _read_pruned_fields(self) -> None:
        """What the CRDs drop, if the user may read them."""
        with suppress(ApiError):
            self.pruned = await read_pruned_fields(self.client)
        if self.pruned.of_markers:
            fields = ", ".join(self.pruned.of_markers)
            self.notes.append(
                f"the CRD of PodProbeMarkers drops {fields} of probes, so markers with them are probed without; "
                "install the CRDs of this version: kruise-probe manifests --crds-only | kubectl apply --server-side -f -"
            )

    def _namespace_of(self, kind: Resource[Any]) -> str:
        return self.system_namespace if kind is LEASES else self.namespace

    async def read(self) -> Snapshot:
        """List everything; append to `notes` what is left out.

        Raises:
            KubeError: markers or pods cannot be listed.
        """
        async with asyncio.timeout(DEADLINE_SECONDS), asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._list_if_allowed(kind)) for kind in _KINDS]
            group.create_task(self._read_pruned_fields())
        return self._snapshot([task.result() for task in tasks])

    async def read_pod(
        self, name: str, *, markers_optional: bool
    ) -> tuple[SeenPod | None, list[PodProbeMarker]]:
        """The pod, or None if it does not exist, and the markers of its namespace.

        Raises:
            KubeError: the pod cannot be read, or the markers cannot and are not optional.
        """
        async with asyncio.timeout(DEADLINE_SECONDS):
            try:
                markers = await self._list(MARKERS, self.namespace)
            except ApiError as error:
                if not markers_optional or error.code not in (403, 404):
                    raise
                markers = []
                why = "the CRDs are not installed" if error.code == 404 else error.message
                self.notes.append(f"{why}; unknown: whether other markers own the same marks")
            with suppress(NotFound):
                key = NamespacedName(self.namespace, name)
                return await self.client.get(SEEN_PODS, key), markers
        return None, markers

    async def visible(self, resource: Resource[T], namespace: str) -> list[T]:
        """All objects of a kind, or none if the user may not list them."""
        with suppress(Forbidden):
            async with asyncio.timeout(DEADLINE_SECONDS):
                return await self._list(resource, namespace)
        return []

    async def _list(self, resource: Resource[T], namespace: str) -> list[T]:
        """List a kind; append to `notes` what cannot be decoded."""
        items: list[T] = []
        token: str | None = ""
        while token is not None:
            page = await self.client.list_page(
                resource,
                namespace=namespace,
                continue_token=token,
            )
            items += page.items
            for failed in page.undecodable:
                note = (
                    f"{resource.kind} {failed.key} cannot be read and is left out: {failed.error}"
                )
                self.notes.append(note)
            token = page.continue_token or None
        return items

    async def _list_if_allowed(self, resource: Resource[T]) -> list[T] | None:
        """As `_list`; None, with a note, if the user may not and the kind is not required."""
        try:
            return await self._list(resource, self._namespace_of(resource))
        except Forbidden:
            if resource.kind not in _HIDDEN_WITHOUT:
                raise
            hidden = _HIDDEN_WITHOUT[resource.kind]
            self.notes.append(f"no permission to list {resource.plural}; unknown: {hidden}")
            return None

    @asynccontextmanager
    async def follow(self, first: Snapshot) -> AsyncIterator[Following]:
        """Watch the kinds that `first` could read, while the body runs."""
        known = [
            first.markers,
            first.pods,
            first.nodes,
            first.node_pod_probes,
            first.leases,
        ]
        informers: list[SharedInformer[Any] | None] = []
        for kind, objects in zip(_KINDS, known, strict=True):
            informers.append(self._informer(kind) if objects is not None else None)
        following = Following(informers, self._snapshot)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(informer.run()) for informer in following.running]
            try:
                await following.wait_for_sync()
                yield following
            finally:
                for task in tasks:
                    task.cancel()

    def _informer(self, kind: Resource[T]) -> SharedInformer[T]:
        namespace = self._namespace_of(kind)
        watched = ResourceListerWatcher(self.client, kind, namespace=namespace)
        return SharedInformer(watched, name=kind.plural)

    def _snapshot(self, lists: Sequence[Iterable[Any] | None]) -> Snapshot:
        markers, pods, nodes, node_pod_probes, leases = lists
        assert markers is not None, "required"
        assert pods is not None, "required"
        return Snapshot(
            now=self.client.server_now(),
            markers=tuple(markers),
            pods=tuple(pods),
            nodes=_by_name(nodes),
            node_pod_probes=_by_name(node_pod_probes),
            leases=_by_name(leases),
            allowed_labels=self.allowed_labels,
            pruned_fields=self.pruned.of_nodes,
        )


def _by_name(objects: Iterable[T] | None) -> Mapping[str, T] | None:
    if objects is None:
        return None
    return {found.key.name: found for found in objects}
