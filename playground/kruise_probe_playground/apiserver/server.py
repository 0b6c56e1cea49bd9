"""The embedded API server: the HTTP frontend over the registry, its listening socket and the garbage collector.

Source: apiserver pkg/server (handler chain).
Differs: on loopback only, nothing is persisted, one process.
"""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple, Self

import yaml
from aiohttp import web
from aiohttp.typedefs import Middleware

from kruise_probe.api.times import utc_now
from kruise_probe_playground.apiserver.authentication import Tokens
from kruise_probe_playground.apiserver.builtin import builtin_kinds
from kruise_probe_playground.apiserver.custom import Validator, custom_kind
from kruise_probe_playground.apiserver.deleting import GarbageCollector
from kruise_probe_playground.apiserver.frontend import MAX_BODY_BYTES, Frontend, abort
from kruise_probe_playground.apiserver.logs import Containers
from kruise_probe_playground.apiserver.registry import Registry
from kruise_probe_playground.apiserver.schema import Json
from kruise_probe_playground.apiserver.writing import Editor, WriteOptions
from kruise_probe_playground.workspace import create_private

DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"
NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")


class Tls(NamedTuple):
    """`authority` is the PEM certificate that clients trust."""

    context: ssl.SSLContext
    authority: bytes


class EmbeddedApiServer:
    """An API server in this process, for as long as the `async with` block lasts.

    Leaving the block ends every watch and drops all objects.

    Args:
        crds: the CustomResourceDefinitions, as dictionaries. Clients only read them.
        validators: rules beyond the CRDs' schemas, by qualified resource.
        tokens, containers: see `Frontend`.
        tls: None serves plain HTTP.
        middlewares: of aiohttp, around every request.
    """

    def __init__(
        self,
        *,
        crds: Iterable[Json],
        validators: Mapping[str, Validator],
        tokens: Tokens,
        containers: Containers | None = None,
        tls: Tls | None = None,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        definitions = list(crds)
        self._port = 0
        self._tls = tls
        self._middlewares = middlewares
        self.registry: Final = Registry(
            [
                *builtin_kinds(),
                *(custom_kind(crd, validators.get(crd["metadata"]["name"])) for crd in definitions),
            ],
            now=utc_now,
        )
        self._frontend = Frontend(
            self.registry, tokens=tokens, containers=containers or Containers()
        )
        self._stack = AsyncExitStack()
        self._seed(definitions)

    def _seed(self, definitions: Iterable[Json]) -> None:
        editor = Editor(self.registry)
        kinds = self.registry.kinds
        options = WriteOptions("kube-apiserver")
        for name in NAMESPACES:
            editor.create(
                kinds["namespaces"],
                "",
                {"metadata": {"name": name}},
                options,
            )
        for crd in definitions:
            editor.create(kinds[DEFINITIONS], "", crd, options)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._serving())
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            collector = tasks.create_task(
                GarbageCollector(self.registry).run(),
                name="collector",
            )
            stack.callback(collector.cancel)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=self._middlewares)
        app.router.add_route("*", "/{path:.*}", self._frontend.handle)
        runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.01
        )
        await runner.setup()
        try:
            context = self._tls.context if self._tls else None
            site = web.TCPSite(
                runner,
                "127.0.0.1",
                0,
                reuse_address=True,
                ssl_context=context,
            )
            await site.start()
            self._port = runner.addresses[0][1]
            yield
        finally:
            connections = list(runner.server.connections) if runner.server else []
            transports = [connection.transport for connection in connections]
            await runner.cleanup()
            # Closing TLS would wait for the client's close_notify.
            for transport in filter(None, transports):
                abort(transport)
            await asyncio.sleep(0)

    @property
    def url(self) -> str:
        """Known once the server listens."""
        scheme = "https" if self._tls else "http"
        return f"{scheme}://127.0.0.1:{self._port}"

    def write_kubeconfig(self, path: Path, *, token: str = "") -> None:
        """Write `kubeconfig` to a new file that only its owner may read.

        Raises:
            FileExistsError: the path exists.
        """
        create_private(path, self.kubeconfig(token=token))

    def kubeconfig(self, *, token: str = "") -> str:
        """A kubeconfig for this server, for the user of `token`, as YAML."""
        cluster = {"server": self.url}
        if self._tls:
            authority = base64.b64encode(self._tls.authority).decode()
            cluster["certificate-authority-data"] = authority
        name = "playground"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [
                {
                    "name": name,
                    "user": {"token": token} if token else {},
                }
            ],
            "contexts": [
                {
                    "name": name,
                    "context": {"cluster": name, "user": name},
                }
            ],
            "current-context": name,
        }
        return yaml.safe_dump(document, sort_keys=False)
