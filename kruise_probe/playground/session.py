"""The playground itself: API server, nodes, manager and daemons, started in order and ended without a trace.

Manager and daemons are what a cluster runs: `python -m kruise_probe manager`, `… daemon`, with their own flags, as
processes of their own. API server and nodes live in this process.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.manifests.crds import all_crds
from kruise_probe.playground.access import (
    ADMIN,
    DAEMON,
    KUBELETS,
    MANAGER,
    SCHEDULER,
    Access,
    new_access,
)
from kruise_probe.playground.apiserver.server import EmbeddedApiServer
from kruise_probe.playground.child import Child
from kruise_probe.playground.documents import Applier, Document
from kruise_probe.playground.node.embedded_node import EmbeddedNode
from kruise_probe.playground.node.node_api import NodeApi
from kruise_probe.playground.node.pods import NODE_PODS
from kruise_probe.playground.node.scheduler import Scheduler
from kruise_probe.playground.private_files import create_private, fill_private
from kruise_probe.playground.programs import daemon, manager
from kruise_probe.playground.raw_api import RawApi
from kruise_probe.playground.workspace import NoWorkspace, Workspace, workspace

USER_AGENT = "kruise-probe-playground"
NAMESPACES = ("default", SYSTEM_NAMESPACE)

T = TypeVar("T")


class Playground:
    """A cluster in miniature, for as long as `run` runs, or for the length of an `async with`.

    Args:
        documents: applied once everything is there.
        nodes: how many; each has a daemon.
        kubeconfig_out: where else to write the kubeconfig; must not exist, removed at the end.
        on_note: told, in a sentence, what happens to the programs.

    Attributes:
        ready: set when everything is started and the documents are applied.
        kubeconfig: the administrator's, with the token of this session.
        config: the same, for a client in this process.
    """

    folder: Path
    kubeconfig: Path
    config: ClusterConfig
    server: EmbeddedApiServer
    client: RestClient
    api: RawApi
    nodes: list[EmbeddedNode]
    manager: Child
    daemons: dict[str, Child]

    def __init__(
        self,
        *,
        documents: Sequence[Document] = (),
        nodes: int = 1,
        kubeconfig_out: Path | None = None,
        on_note: Callable[[str], None] | None = None,
    ) -> None:
        self.ready = asyncio.Event()
        self._documents = documents
        self._node_count = nodes
        self._kubeconfig_out = kubeconfig_out
        self._on_note = on_note
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self.run(), name="playground")
        ready = asyncio.create_task(self.ready.wait())
        try:
            await asyncio.wait((self._running, ready), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # Also when it is ready by now: who never enters is never asked to exit.
            await self._stop()
            raise
        finally:
            ready.cancel()
        if not self.ready.is_set():
            await self._stop()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stop()

    async def _stop(self) -> None:
        """Ends `run` and raises what it failed with, if it did."""
        if self._running is None:
            return
        self._running.cancel()
        await asyncio.wait((self._running,))
        if not self._running.cancelled():
            self._running.result()

    async def alongside(self, work: Coroutine[Any, Any, T]) -> T:
        """Does `work` within the `async with`; ends it, and raises, when the playground ends of itself."""
        task = asyncio.create_task(work, name="beside the playground")
        try:
            await asyncio.wait(
                {task, *filter(None, (self._running,))}, return_when=asyncio.FIRST_COMPLETED
            )
            if self._running and self._running.done():
                self._running.result()
        finally:
            task.cancel()
            await asyncio.wait((task,))
        return task.result()

    async def run(self) -> None:
        """Runs until cancelled; in the end no process, file or socket is left.

        Raises:
            ExceptionGroup: of whatever ended one of its parts: ChildFailed, BadFile, NoAddress, OSError.
            FileExistsError: of `kubeconfig_out`.
            NoWorkspace: there is no place for its files.
        """
        access = new_access()
        with self._place() as place:
            async with EmbeddedApiServer(
                crds=all_crds(), tokens=access.tokens, certificate=access.certificate
            ) as server:
                self.server = server
                self.config = access.config(server.url, ADMIN)
                self._write_kubeconfigs(server, access, place.folder)
                async with (
                    _client(self.config, "kubectl") as self.client,
                    _client(access.config(server.url, KUBELETS), "kubelet") as kubelets,
                    _client(access.config(server.url, SCHEDULER), "kube-scheduler") as scheduler,
                ):
                    self.api = RawApi(self.client)
                    await self._run_cluster(place, kubelets, scheduler)

    @contextmanager
    def _place(self) -> Iterator[Workspace]:
        """The workspace. The extra kubeconfig is made before: what it removes at the end is then our own file."""
        extra = [self._kubeconfig_out] if self._kubeconfig_out else []
        for path in extra:
            create_private(path)
        try:
            with workspace(extra) as place:
                yield place
        except NoWorkspace:
            for path in extra:
                path.unlink(missing_ok=True)
            raise

    def _write_kubeconfigs(self, server: EmbeddedApiServer, access: Access, folder: Path) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        server.write_kubeconfig(self.kubeconfig, token=access.token(ADMIN))
        for name, user in (("manager", MANAGER), ("daemon", DAEMON)):
            server.write_kubeconfig(_kubeconfig_of(name, folder), token=access.token(user))
        if self._kubeconfig_out:
            text = server.kubeconfig_text(token=access.token(ADMIN))
            fill_private(self._kubeconfig_out, text)

    async def _run_cluster(
        self, place: Workspace, kubelets: RestClient, scheduler: RestClient
    ) -> None:
        applier = Applier(self.client)
        await applier.apply([_namespace(name) for name in NAMESPACES])
        self.nodes = [
            EmbeddedNode(
                name=f"node-{number}",
                client=kubelets,
                folder=place.folder,
                mark=f"{place.mark}/node-{number}",
            )
            for number in range(self._node_count)
        ]
        managers, daemons = (_kubeconfig_of(name, place.folder) for name in ("manager", "daemon"))
        self.manager = manager(managers, place, on_end=self._note_end)
        self.daemons = {
            node.name: daemon(daemons, place, node, on_end=self._note_end) for node in self.nodes
        }
        async with asyncio.TaskGroup() as cluster, asyncio.TaskGroup() as programs:
            for node in self.nodes:
                cluster.create_task(node.run(), name=node.name)
            cluster.create_task(self._schedule(scheduler), name="scheduler")
            programs.create_task(self.manager.run(), name="manager")
            for node in self.nodes:
                await node.ready.wait()
                programs.create_task(self.daemons[node.name].run(), name=f"daemon of {node.name}")
            await applier.apply(self._documents)
            self.ready.set()
            await asyncio.Event().wait()

    async def _schedule(self, client: RestClient) -> None:
        pods = SharedInformer(ResourceListerWatcher(client, NODE_PODS), name="pods to schedule")
        await Scheduler(pods, NodeApi(client), nodes=[each.name for each in self.nodes]).run()

    def _note_end(self, name: str, exit_code: int) -> None:
        if self._on_note:
            self._on_note(f"the {name} ended with exit code {exit_code}; it is started again")

    def node_of(self, pod_name: str, namespace: str = "default") -> EmbeddedNode | None:
        """The node on which a pod's containers are."""
        for node in self.nodes:
            for sandbox in node.runtime.sandboxes:
                if (sandbox.config.namespace, sandbox.config.name) == (namespace, pod_name):
                    return node
        return None

    async def apply(self, documents: Sequence[Document]) -> None:
        """Applies further objects; raises BadFile or KubeError."""
        await Applier(self.client).apply(documents)

    async def kill_manager(self) -> None:
        """As `kill -9`; it stays away until `start_manager`."""
        await self.manager.kill()

    def start_manager(self) -> None:
        self.manager.start()

    async def kill_daemon(self, node: str = "node-0") -> None:
        """As `kill -9`; it stays away until `start_daemon`."""
        await self.daemons[node].kill()

    def start_daemon(self, node: str = "node-0") -> None:
        self.daemons[node].start()

    async def restart_daemon(self, node: str = "node-0") -> None:
        """Ends it in order and starts it again, as a rolling update does."""
        await self.daemons[node].stop()
        self.daemons[node].start()


def _kubeconfig_of(program: str, folder: Path) -> Path:
    return folder / f"{program}.kubeconfig"


def _client(config: ClusterConfig, field_manager: str) -> RestClient:
    return RestClient(config=config, field_manager=field_manager, user_agent=USER_AGENT)


def _namespace(name: str) -> Document:
    return Document(
        f"Namespace {name}",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
    )
