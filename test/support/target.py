"""One cluster as tests see it, whatever serves it: requests in JSON, and objects that watches keep current.

A test waits for conditions without polling. The playground and a kubeconfig's cluster differ in the client only.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from support.patience import PATIENCE_SECONDS
from support.wire import Json, typed

from kruise_probe.api.core import EVENTS
from kruise_probe.api.meta import NamespacedName, Resource
from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, PODS
from kruise_probe.client.config import load_config
from kruise_probe.client.request import PatchType
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.informers.shared_informer import SharedInformer

GROUP = "/apis/apps.kruise.io/v1alpha1"


class JsonObject:
    """An object in its wire form."""

    def __init__(self, raw: Json) -> None:
        self.raw = raw
        meta = raw["metadata"]
        self.key = NamespacedName(meta.get("namespace", ""), meta["name"])
        self.uid: str = meta["uid"]
        self.resource_version: str = meta["resourceVersion"]


class WatchedKind:
    """All objects of one kind, and every version of each."""

    def __init__(self, client: RestClient, resource: Resource[Any]) -> None:
        self.kind = resource.kind
        source = ResourceListerWatcher(client, replace(resource, wire=dict, project=JsonObject))
        self.informer: SharedInformer[Any] = SharedInformer(source, name=resource.plural)
        self.history: dict[NamespacedName, list[Json]] = {}
        self.waiting: set[asyncio.Event] = set()
        self.informer.add_event_handler(self)

    def on_add(self, obj: JsonObject, is_initial: bool) -> None:
        self._note(obj)

    def on_update(self, old: JsonObject, new: JsonObject) -> None:
        self._note(new)

    def on_delete(self, last_known: JsonObject) -> None:
        self._wake()

    def _note(self, obj: JsonObject) -> None:
        versions = self.history.setdefault(obj.key, [])
        versions.append(obj.raw)
        self._wake()

    def _wake(self) -> None:
        for event in self.waiting:
            event.set()

    async def next_change(self) -> None:
        """Returns once an object of the kind changes after the call."""
        changed = asyncio.Event()
        self.waiting.add(changed)
        try:
            await changed.wait()
        finally:
            self.waiting.discard(changed)

    def newest(self, name: str, namespace: str = "") -> Json | None:
        found = self.informer.lister.get(NamespacedName(namespace, name))
        return found.raw if found else None

    def current(self, name: str, namespace: str = "") -> Json:
        """As `newest`, for an object that exists."""
        found = self.newest(name, namespace)
        assert found, f"{self.kind} {name} does not exist"
        return found

    def all(self) -> list[Json]:
        return [obj.raw for obj in self.informer.lister.list()]

    def names(self, namespace: str) -> list[str]:
        keys = [obj.key for obj in self.informer.lister.list()]
        return [key.name for key in keys if key.namespace == namespace]

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

        def check() -> object:
            newest = self.newest(name, namespace)
            found[:] = [newest] if newest else []
            return newest and holds(newest)

        await self.wait(
            f"{self.kind} {name}: {what}",
            check,
            seconds=seconds,
            show=found,
        )
        return found[0]

    async def until_gone(self, name: str, namespace: str = "") -> None:
        await self.wait(f"{self.kind} {name} is gone", lambda: not self.newest(name, namespace))

    async def wait(
        self,
        what: str,
        holds: Callable[..., object],
        *,
        seconds: float = PATIENCE_SECONDS,
        show: object = None,
    ) -> None:
        """Returns once `holds`; checks it after each change of an object of the kind."""
        await _wait(
            [self],
            what,
            holds,
            seconds=seconds,
            seen=lambda: show,
        )


class Target:
    """Requests to one cluster: paths in, dictionaries out; refusals are `api.errors`.

    Its kinds are current in a block of `watched`.
    """

    def __init__(self, client: RestClient) -> None:
        self.client = client
        self.pods = WatchedKind(client, PODS)
        self.events = WatchedKind(client, EVENTS)
        self.markers = WatchedKind(client, MARKERS)
        self.node_pod_probes = WatchedKind(client, NODE_POD_PROBES)
        self._kinds = (self.pods, self.events, self.markers, self.node_pod_probes)

    async def get(self, path: str) -> Json:
        return _object(await self.client.request_raw("GET", path))

    async def create(self, path: str, body: Json) -> Json:
        """Creates in the collection at `path`."""
        return _object(await self.client.request_raw("POST", path, msgspec.json.encode(body)))

    async def merge(self, path: str, change: Json) -> Json:
        """A JSON merge patch of the object, or subresource, at `path`."""
        body = msgspec.json.encode(change)
        return _object(
            await self.client.request_raw(
                "PATCH",
                path,
                body,
                PatchType.MERGE,
            )
        )

    async def delete(self, path: str, *, grace_seconds: int | None = None) -> Json:
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        return _object(await self.client.request_raw("DELETE", path, msgspec.json.encode(options)))

    async def wait_while(
        self, what: str, differs: Callable[[], object], *, seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Returns once `differs` is empty; checks it after each change."""
        await _wait(
            self._kinds,
            what,
            lambda: not differs(),
            seconds=seconds,
            seen=differs,
        )

    @asynccontextmanager
    async def watched(self) -> AsyncIterator["Target"]:
        """Watches the four kinds, from before the block."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(kind.informer.run()) for kind in self._kinds]
            for kind in self._kinds:
                await kind.informer.wait_for_sync()
            try:
                yield self
            finally:
                for task in tasks:
                    task.cancel()


class JobNamespace:
    """A namespace of its own on a target; `exec` runs a shell script in the first container of a pod."""

    def __init__(
        self,
        api: Target,
        name: str,
        exec: Callable[[str, str], Awaitable[object]],
    ) -> None:
        self.api = api
        self.name = name
        self.exec = exec

    @property
    def pods(self) -> dict[str, Json]:
        """The pods that are not terminating, by name."""
        found = {}
        for name in self.api.pods.names(self.name):
            pod = self.api.pods.current(name, self.name)
            if "deletionTimestamp" not in pod["metadata"]:
                found[name] = pod
        return found

    async def until(self, what: str, holds: Callable[[dict[str, Json]], object]) -> None:
        """Returns once `holds` is true for the pods."""
        gist = {}
        for name, pod in self.pods.items():
            conditions = pod.get("status", {}).get("conditions")
            gist[name] = (labels(pod), annotations(pod), conditions)
        await self.api.pods.wait(what, lambda: holds(self.pods), show=gist)

    async def put_marker(self, name: str, spec: Json) -> None:
        """Creates the marker, or replaces its probes."""
        path = marker_path(name, self.name)
        if self.api.markers.newest(name, self.name):
            await self.api.merge(path, {"spec": spec})
        else:
            body = typed("PodProbeMarker", metadata={"name": name}, spec=spec)
            await self.api.create(path.removesuffix(f"/{name}"), body)

    async def remove_marker(self, name: str) -> None:
        """Returns when the marker is gone."""
        await self.api.delete(marker_path(name, self.name))
        await self.api.markers.until_gone(name, self.name)


@asynccontextmanager
async def cluster_of(kubeconfig: Path) -> AsyncIterator[Target]:
    """The cluster of a kubeconfig, watched."""
    config = load_config(str(kubeconfig))
    async with (
        RestClient(config=config, field_manager="kubectl", user_agent="test") as client,
        Target(client).watched() as target,
    ):
        yield target


async def _wait(
    kinds: Sequence[WatchedKind],
    what: str,
    holds: Callable[..., object],
    *,
    seconds: float,
    seen: Callable[[], object],
) -> None:
    """Returns once `holds`; checks it after each change of an object of these kinds."""
    changed = asyncio.Event()
    for kind in kinds:
        kind.waiting.add(changed)
    try:
        async with asyncio.timeout(seconds):
            while not holds():
                await changed.wait()
                changed.clear()
    except TimeoutError:
        last = json.dumps(seen(), indent=1, default=str)
        raise AssertionError(f"not within {seconds:g} s: {what}; last seen: {last}") from None
    finally:
        for kind in kinds:
            kind.waiting.discard(changed)


def pod_path(name: str, namespace: str = "default", subresource: str = "") -> str:
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    return f"{path}/{subresource}" if subresource else path


def marker_path(name: str, namespace: str = "default") -> str:
    return f"{GROUP}/namespaces/{namespace}/podprobemarkers/{name}"


def node_pod_probe_path(node: str = "node-0") -> str:
    return f"{GROUP}/nodepodprobes/{node}"


def _object(body: bytes) -> Json:
    found: Json = msgspec.json.decode(body)
    return found


def condition(pod: Json, kind: str) -> Json:
    """The condition of that type, or an empty dict."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return next((condition for condition in conditions if condition["type"] == kind), {})


def status_of(pod: Json, kind: str) -> str | None:
    return condition(pod, kind).get("status")


def labels(pod: Json) -> dict[str, str]:
    return pod["metadata"].get("labels") or {}


def annotations(pod: Json) -> dict[str, str]:
    return pod["metadata"].get("annotations") or {}


def results_of(node_pod_probe: Json) -> dict[tuple[str, str], tuple[str, str]]:
    """State and message in a NodePodProbe's status, by the pod's uid and the probe's name."""
    results = {}
    for pod in (node_pod_probe.get("status") or {}).get("podProbeStatuses") or ():
        for state in pod.get("probeStates") or ():
            results[pod["uid"], state["name"]] = (state["state"], state.get("message", ""))
    return results
