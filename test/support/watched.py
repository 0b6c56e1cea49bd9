"""Objects of an API server as JSON, kept current by watches, and waiting for conditions without polling."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from support.patience import PATIENCE_SECONDS

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.kinds import Resource
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.informers.shared_informer import SharedInformer

Json = dict[str, Any]


class JsonObject:
    """An object in its wire form."""

    def __init__(self, raw: Json) -> None:
        self.raw = raw
        meta = raw["metadata"]
        self.key = NamespacedName(meta.get("namespace", ""), meta["name"])
        self.uid: str = meta["uid"]
        self.resource_version: str = meta["resourceVersion"]


def _resource(
    group: str, version: str, plural: str, kind: str, *, namespaced: bool = True
) -> Resource[JsonObject]:
    return Resource(
        group, version, plural, kind, wire=dict, project=JsonObject, namespaced=namespaced
    )


class WatchedKind:
    """All objects of one kind, and every version of each."""

    def __init__(self, client: RestClient, resource: Resource[JsonObject]) -> None:
        self.kind = resource.kind
        self.informer = SharedInformer(
            ResourceListerWatcher(client, resource), name=resource.plural
        )
        self.history: dict[NamespacedName, list[Json]] = {}
        self._waiting: set[asyncio.Event] = set()
        self.informer.add_event_handler(self)

    def on_add(self, obj: JsonObject, is_initial: bool) -> None:
        self._note(obj)

    def on_update(self, old: JsonObject, new: JsonObject) -> None:
        self._note(new)

    def on_delete(self, last_known: JsonObject) -> None:
        self._wake()

    def _note(self, obj: JsonObject) -> None:
        self.history.setdefault(obj.key, []).append(obj.raw)
        self._wake()

    def _wake(self) -> None:
        for event in self._waiting:
            event.set()

    async def next_change(self) -> None:
        """Returns once an object of the kind changes after the call."""
        changed = asyncio.Event()
        self._waiting.add(changed)
        try:
            await changed.wait()
        finally:
            self._waiting.discard(changed)

    def newest(self, name: str, namespace: str = "") -> Json | None:
        found = self.informer.lister.get(NamespacedName(namespace, name))
        return found.raw if found else None

    def current(self, name: str, namespace: str = "") -> Json:
        """As `newest`, for an object that exists."""
        found = self.newest(name, namespace)
        assert found is not None, f"{self.kind} {name} does not exist"
        return found

    def all(self) -> list[Json]:
        return [each.raw for each in self.informer.lister.list()]

    async def until(
        self,
        what: str,
        holds: Callable[..., object],
        *,
        name: str,
        namespace: str = "",
        seconds: float = PATIENCE_SECONDS,
    ) -> Json:
        """Returns the object once it exists and `holds` is true for it."""
        found: list[Json] = []

        def check() -> bool:
            newest = self.newest(name, namespace)
            found[:] = [newest] if newest else []
            return newest is not None and bool(holds(newest))

        await self.wait(f"{self.kind} {name}: {what}", check, seconds=seconds, show=found)
        return found[0]

    async def until_gone(
        self, name: str, namespace: str = "", *, seconds: float = PATIENCE_SECONDS
    ) -> None:
        await self.wait(
            f"{self.kind} {name} is gone",
            lambda: self.newest(name, namespace) is None,
            seconds=seconds,
        )

    async def wait(
        self,
        what: str,
        holds: Callable[..., object],
        *,
        seconds: float = PATIENCE_SECONDS,
        show: object = None,
    ) -> None:
        """Returns once `holds`; checks it after each change of an object of the kind."""
        changed = asyncio.Event()
        self._waiting.add(changed)
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            seen = json.dumps(show, indent=1, default=str) if show else ""
            raise AssertionError(f"not within {seconds:g} s: {what}; last seen: {seen}") from None
        finally:
            self._waiting.discard(changed)


class WatchedObjects:
    """Pods, events, markers and NodePodProbes of a whole cluster."""

    def __init__(self, client: RestClient) -> None:
        group, version = "apps.kruise.io", "v1alpha1"
        self.pods = WatchedKind(client, _resource("", "v1", "pods", "Pod"))
        self.events = WatchedKind(client, _resource("", "v1", "events", "Event"))
        self.markers = WatchedKind(
            client, _resource(group, version, "podprobemarkers", "PodProbeMarker")
        )
        self.node_pod_probes = WatchedKind(
            client, _resource(group, version, "nodepodprobes", "NodePodProbe", namespaced=False)
        )

    async def wait_while(
        self, what: str, differs: Callable[[], object], *, seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Returns once `differs` is empty; checks it after each change."""
        changed = asyncio.Event()
        kinds = (self.pods, self.events, self.markers, self.node_pod_probes)
        for each in kinds:
            each._waiting.add(changed)
        try:
            async with asyncio.timeout(seconds):
                while differs():
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            seen = json.dumps(differs(), indent=1, default=str)
            raise AssertionError(f"not within {seconds:g} s: {what}; still: {seen}") from None
        finally:
            for each in kinds:
                each._waiting.discard(changed)


@asynccontextmanager
async def watching(client: RestClient) -> AsyncIterator[WatchedObjects]:
    """Watches all of these objects, from before the block."""
    watched = WatchedObjects(client)
    kinds = (watched.pods, watched.events, watched.markers, watched.node_pod_probes)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each.informer.run()) for each in kinds]
        for each in kinds:
            await each.informer.wait_for_sync()
        try:
            yield watched
        finally:
            for task in tasks:
                task.cancel()


def condition(pod: Json, kind: str) -> Json:
    """The condition of that type, or an empty dict."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == kind), {})


def results_of(node_pod_probe: Json) -> dict[tuple[str, str], tuple[str, str]]:
    """State and message in a NodePodProbe's status, by the pod's uid and the probe's name."""
    return {
        (pod["uid"], each["name"]): (each["state"], each.get("message", ""))
        for pod in (node_pod_probe.get("status") or {}).get("podProbeStatuses") or ()
        for each in pod.get("probeStates") or ()
    }


def labels(pod: Json) -> dict[str, str]:
    return pod["metadata"].get("labels") or {}


def annotations(pod: Json) -> dict[str, str]:
    return pod["metadata"].get("annotations") or {}
