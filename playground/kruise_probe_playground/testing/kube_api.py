"""An API server in a thread: its address, its objects, and its faults.

All methods may be called from any thread. They return when the server has completed them.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import msgspec

from kruise_probe.api.keys import NamespacedName
from kruise_probe_playground.access import ADMIN, new_tls, new_token
from kruise_probe_playground.apiserver.schema import Json
from kruise_probe_playground.apiserver.server import EmbeddedApiServer
from kruise_probe_playground.apiserver.store import Scope
from kruise_probe_playground.apiserver.writing import Editor, WriteOptions
from kruise_probe_playground.testing.definitions import DefinitionSource, read_definitions
from kruise_probe_playground.testing.faults import Faults

T = TypeVar("T")

_WRITE_OPTIONS: Final = WriteOptions("kube-api")


class KubeApi:
    """A new API server for as long as the `with` block lasts.

    Attributes:
        url: its address; other users of the machine cannot use it, because requests need the token of `kubeconfig`.
        requests: how many requests there were, by (verb, resource, code), e.g. `("patch", "pods/status", 200)`.
    """

    url: str
    requests: Mapping[tuple[str, str, int], int]

    def __init__(self, crds: Iterable[DefinitionSource] = ()) -> None:
        self._crds = [crd for each in crds for crd in read_definitions(each)]
        self._token = new_token()
        self._faults = Faults()
        self.requests = self._faults.requests
        self._thread = threading.Thread(target=self._run, name="kube_api", daemon=True)
        self._started: Future[None] = Future()

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        async with EmbeddedApiServer(
            crds=self._crds,
            validators={},
            tokens={self._token: ADMIN},
            tls=new_tls(),
            middlewares=[self._faults.middleware],
        ) as self._server:
            self.url = self._server.url
            self._started.set_result(None)
            await self._stopping.wait()
            self._server.pause(paused=False)

    def _in_server(self, work: Callable[[], T]) -> T:
        """Run `work` in the server's thread."""

        async def run() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    # Access

    def kubeconfig(self) -> str:
        """A kubeconfig with all rights, as YAML. It contains a token; see `write_kubeconfig`."""
        return self._server.kubeconfig(token=self._token)

    def write_kubeconfig(self, path: Path) -> None:
        """Write the kubeconfig to a new file that only its owner may read."""
        self._server.write_kubeconfig(path, token=self._token)

    # Objects

    def define(self, *sources: DefinitionSource) -> None:
        """Serve more kinds: CustomResourceDefinitions as YAML files, dictionaries or msgspec structs."""
        for source in sources:
            for crd in read_definitions(source):
                self.create(crd)

    def create(self, obj: Json) -> Json:
        """Create an object, in the namespace `default` unless it names one, and return it as stored.

        Raises:
            Failure: the error response of the server, e.g. 409 for an object that exists.
            ValueError: the kind is not served.
        """

        def create() -> Json:
            registry = self._server.registry
            for kind in registry.kinds.values():
                if (kind.api_version, kind.kind) == (obj.get("apiVersion"), obj.get("kind")):
                    given = obj.get("metadata", {}).get("namespace") or "default"
                    namespace = given if kind.namespaced else ""
                    written = Editor(registry).create(kind, namespace, obj, _WRITE_OPTIONS)
                    return kind.decode(written.stored)
            raise ValueError(f"{obj.get('apiVersion')} {obj.get('kind')} is not served; define it")

        return self._in_server(create)

    def objects(self, resource: str, namespace: str = "") -> list[Json]:
        """All objects of e.g. `pods` or `fleets.example.com`, in one namespace or in all."""

        def objects() -> list[Json]:
            registry = self._server.registry
            kind = registry.kinds[resource]
            found = registry.collection(kind).ordered()
            return [kind.decode(each) for each in found if namespace in ("", each.key.namespace)]

        return self._in_server(objects)

    def object(self, resource: str, name: str, namespace: str = "default") -> Json | None:
        """One object; None if there is none. Cluster-scoped kinds ignore the namespace."""

        def one() -> Json | None:
            registry = self._server.registry
            kind = registry.kinds[resource]
            key = NamespacedName(namespace if kind.namespaced else "", name)
            stored = registry.collection(kind).objects.get(key)
            return None if stored is None else kind.decode(stored)

        return self._in_server(one)

    def wait_for(
        self,
        resource: str,
        name: str,
        condition: Callable[[Json | None], bool],
        namespace: str = "default",
        *,
        seconds: float = 10.0,
    ) -> Json | None:
        """Wait until the object meets the condition, and return it; None means that it does not exist.

        Raises:
            TimeoutError: it does not within `seconds`; the text is the object as it is.
        """
        waiting = self._wait_for(resource, name, condition, namespace, seconds)
        return asyncio.run_coroutine_threadsafe(waiting, self._loop).result()

    async def until(
        self,
        resource: str,
        name: str,
        condition: Callable[[Json | None], bool],
        namespace: str = "default",
        *,
        seconds: float = 10.0,
    ) -> Json | None:
        """`wait_for`, for asynchronous tests."""
        waiting = self._wait_for(resource, name, condition, namespace, seconds)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(waiting, self._loop))

    async def _wait_for(
        self,
        resource: str,
        name: str,
        condition: Callable[[Json | None], bool],
        namespace: str,
        seconds: float,
    ) -> Json | None:
        registry = self._server.registry
        kind = registry.kinds[resource]
        key = NamespacedName(namespace if kind.namespaced else "", name)
        collection = registry.collection(kind)
        watcher = collection.watch(Scope(key.namespace))
        found: Json | None = None
        try:
            async with asyncio.timeout(seconds):
                while True:
                    watcher.take()
                    stored = collection.objects.get(key)
                    found = None if stored is None else kind.decode(stored)
                    if condition(found):
                        return found
                    await watcher.wait()
        except TimeoutError:
            shown = msgspec.json.encode(found).decode()
            message = f"{resource} {key}: the condition is not met after {seconds:g} s: {shown}"
            raise TimeoutError(message) from None
        finally:
            collection.unwatch(watcher)

    # Faults

    def fail(
        self,
        verb: str = "",
        resource: str = "",
        times: int | None = 1,
        *,
        code: int = 500,
        reason: str = "InternalError",
        retry_after_seconds: int | None = None,
    ) -> None:
        """Refuse the next requests with an error.

        Args:
            verb: as in roles: get, list, watch, create, update, patch, delete, deletecollection; empty for all.
            resource: the plural, with its subresource: `pods/status`; empty for all.
            times: how often; None until `heal`.
            code: the HTTP status, with the `reason` of its metav1.Status.
            reason: see `code`.
            retry_after_seconds: the header Retry-After.
        """
        self._in_server(
            lambda: self._faults.fail(
                code=code,
                reason=reason,
                verb=verb,
                resource=resource,
                times=times,
                retry_after_seconds=retry_after_seconds,
            )
        )

    def expire(self) -> None:
        """Make every existing resource version and continue token too old: requests with them fail with 410."""
        self._in_server(self._server.registry.store.expire)

    def drop_watches(self) -> None:
        """End all watches, as after their timeout."""
        self._in_server(self._server.close_watches)

    def black_hole(self) -> None:
        """Send no response, and nothing to open watches, until `heal`. Connections stay open."""
        self._in_server(lambda: self._server.pause(paused=True))

    def heal(self) -> None:
        """End all faults. After a black hole, waiting requests get their responses, and watches the events that they missed."""

        def heal() -> None:
            self._faults.heal()
            self._server.pause(paused=False)

        self._in_server(heal)
