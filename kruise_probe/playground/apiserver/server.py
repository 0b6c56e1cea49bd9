"""The embedded API server: HTTP in front, the registry behind.

Source: apiserver pkg/server (handler chain); the rest is in the modules that this one wires.
Differs: on loopback only, plain HTTP without a certificate, no persistence, one process.
"""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml
from aiohttp import web

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.times import utc_now
from kruise_probe.playground.apiserver.builtin import builtin_kinds
from kruise_probe.playground.apiserver.custom import Validator, custom_kind
from kruise_probe.playground.apiserver.definitions import DEFINITION_KIND, store_definition
from kruise_probe.playground.apiserver.faults import Faults
from kruise_probe.playground.apiserver.frontend import MAX_BODY_BYTES, Frontend
from kruise_probe.playground.apiserver.garbage import GarbageCollector
from kruise_probe.playground.apiserver.marker_rules import MARKERS_RESOURCE, marker_problems
from kruise_probe.playground.apiserver.registry import Registry
from kruise_probe.playground.apiserver.schema import Json
from kruise_probe.playground.apiserver.users import Tokens
from kruise_probe.playground.apiserver.writing import Editor, Options
from kruise_probe.playground.private_files import create_private
from kruise_probe.serving.certificates import IssuedCertificate
from kruise_probe.serving.tls import load_certificate, server_context

DEFAULT_VALIDATORS: Final[Mapping[str, Validator]] = {MARKERS_RESOURCE: marker_problems}
NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")


class EmbeddedApiServer:
    """An API server in this process, for as long as the `async with` block lasts.

    Owns its listening socket, its objects and the garbage collector. Leaving the block ends every watch and
    forgets everything.

    Args:
        crds: the CustomResourceDefinitions to serve, as dictionaries.
        validators: rules beyond the CRDs' schemas, by qualified resource.
        now: the wall clock.
        port: of 127.0.0.1; 0 takes a free one.
        tokens: every request but those for health must carry one of them; `NO_TOKENS` accepts every request.
        certificate: serves TLS with it; None serves plain HTTP.
        authorize: whether `(user, verb, resource, namespace)` is allowed; called only with tokens.
    """

    def __init__(
        self,
        *,
        crds: Iterable[Json],
        tokens: Tokens,
        validators: Mapping[str, Validator] = DEFAULT_VALIDATORS,
        now: Callable[[], datetime] = utc_now,
        port: int = 0,
        certificate: IssuedCertificate | None = None,
        authorize: Callable[[str, str, str, str], bool] | None = None,
    ) -> None:
        self._crds = list(crds)
        self._port = port
        self._certificate = certificate
        customs = [
            custom_kind(each, validators.get(each["metadata"]["name"])) for each in self._crds
        ]
        self.registry: Final = Registry([*builtin_kinds(), *customs, DEFINITION_KIND], now=now)
        self.faults: Final = Faults()
        self._frontend = Frontend(self.registry, self.faults, tokens=tokens, authorize=authorize)
        self._stack = AsyncExitStack()
        self._seed()

    def _seed(self) -> None:
        editor = Editor(self.registry)
        namespaces = self.registry.kinds["namespaces"]
        for name in NAMESPACES:
            editor.create(namespaces, "", {"metadata": {"name": name}}, Options("kube-apiserver"))
        for crd in self._crds:
            store_definition(self.registry, crd)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._serving())
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            collector = tasks.create_task(GarbageCollector(self.registry).run(), name="collector")
            stack.callback(collector.cancel)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def run(self) -> None:
        """Serves until cancelled."""
        async with self:
            await asyncio.Event().wait()

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._frontend.handle)
        runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await runner.setup()
        try:
            tls = _tls(self._certificate) if self._certificate else None
            site = web.TCPSite(runner, "127.0.0.1", self._port, reuse_address=True, ssl_context=tls)
            await site.start()
            self._port = runner.addresses[0][1]
            yield
        finally:
            self.drop_watches()
            await runner.cleanup()

    @property
    def url(self) -> str:
        """Known once the server runs."""
        scheme = "https" if self._certificate else "http"
        return f"{scheme}://127.0.0.1:{self._port}"

    def kubeconfig(self, *, token: str = "") -> Json:
        """A kubeconfig for this server; with `token` for that user."""
        cluster = {"server": self.url}
        if self._certificate:
            authority = base64.b64encode(self._certificate.authority).decode()
            cluster["certificate-authority-data"] = authority
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "playground", "cluster": cluster}],
            "users": [{"name": "playground", "user": {"token": token} if token else {}}],
            "contexts": [
                {"name": "playground", "context": {"cluster": "playground", "user": "playground"}}
            ],
            "current-context": "playground",
        }

    def write_kubeconfig(self, path: Path, *, token: str = "") -> None:
        """Writes `kubeconfig` to a new file that only its owner may read.

        Raises:
            FileExistsError: something has this name already.
        """
        create_private(path, self.kubeconfig_text(token=token))

    def kubeconfig_text(self, *, token: str = "") -> str:
        """`kubeconfig` as YAML."""
        return yaml.safe_dump(self.kubeconfig(token=token), sort_keys=False)

    def drop_watches(self, *, abruptly: bool = False) -> int:
        """Ends all watches that run, in good order or by resetting their connections.

        Returns:
            How many there were.
        """
        return self._frontend.drop_watches(abruptly=abruptly)

    def black_hole_watches(self, *, on: bool = True) -> None:
        """From now on watches stay open and say nothing, until switched off again."""
        self._frontend.black_hole(on=on)

    def expire(self) -> None:
        """Makes every resource version and continue token given out so far too old (410)."""
        self.registry.store.expire()

    def objects(self, resource: str) -> list[Any]:
        """All objects of e.g. `pods` or `nodepodprobes.apps.kruise.io`, decoded; for assertions."""
        kind = self.registry.kinds[resource]
        return [kind.decode(each) for each in self.registry.collection(kind).ordered()]

    def object(self, resource: str, name: str, namespace: str = "") -> Json | None:
        """One of them, or None."""
        kind = self.registry.kinds[resource]
        stored = self.registry.collection(kind).objects.get(NamespacedName(namespace, name))
        return None if stored is None else kind.decode(stored)


def _tls(certificate: IssuedCertificate) -> ssl.SSLContext:
    context = server_context()
    load_certificate(context, certificate.certificate + certificate.key)
    return context
