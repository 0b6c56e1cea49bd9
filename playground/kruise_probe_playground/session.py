"""A running playground: API server, nodes, manager and daemons, started in order, and removed without a trace.

Manager and daemons are the product's own programs, `python -m kruise_probe manager` and `… daemon`, in processes of
their own. API server and nodes run in this process.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.manifests.crds import all_crds
from kruise_probe_playground.access import (
    ADMIN,
    CONTROLLERS,
    DAEMON,
    KUBELETS,
    MANAGER,
    SCHEDULER,
    Access,
    new_access,
)
from kruise_probe_playground.apiserver.server import EmbeddedApiServer
from kruise_probe_playground.documents import Applier, LoadedObject
from kruise_probe_playground.marker_rules import MARKER_VALIDATORS
from kruise_probe_playground.node.containers import (
    CannotStart,
    LocalContainer,
    NoSuchContainer,
    NotRunning,
)
from kruise_probe_playground.node.embedded_node import EmbeddedNode
from kruise_probe_playground.node.node_api import NodeApi
from kruise_probe_playground.node.pods import NODE_PODS
from kruise_probe_playground.node.runtime import LocalRuntime
from kruise_probe_playground.node.scheduler import Scheduler
from kruise_probe_playground.pod_streams import LogOptions, NotOnNode
from kruise_probe_playground.private_files import create_private, fill_private
from kruise_probe_playground.programs import Child, daemon, manager
from kruise_probe_playground.replicas import ReplicaSetController
from kruise_probe_playground.workspace import NoWorkspace, Workspace, workspace

USER_AGENT = "kruise-probe-playground"
NAMESPACES = ("default", SYSTEM_NAMESPACE)

T = TypeVar("T")


class Playground:
    """A small cluster that runs for the length of an `async with`.

    Args:
        documents: applied when everything has started.
        nodes: how many; each has a daemon.
        kubeconfig_out: a second path for the kubeconfig. It must not exist, and is removed at the end.
        on_note: called with a sentence when an object is skipped, or a program ends unexpectedly.

    Attributes:
        kubeconfig: the administrator's, with the token of this session.
        config: the same, for a client in this process.
    """

    folder: Path
    kubeconfig: Path
    config: ClusterConfig
    client: RestClient
    manager: Child
    daemons: dict[str, Child]

    def __init__(
        self,
        *,
        documents: Sequence[LoadedObject] = (),
        nodes: int = 1,
        kubeconfig_out: Path | None = None,
        on_note: Callable[[str], None] | None = None,
    ) -> None:
        self.ready = asyncio.Event()
        self._documents = documents
        self._node_count = nodes
        self._kubeconfig_out = kubeconfig_out
        self._on_note = on_note
        self._nodes: list[EmbeddedNode] = []
        self._running: asyncio.Task[None] | None = None

    @property
    def nodes(self) -> Sequence[EmbeddedNode]:
        return self._nodes

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self.run(), name="playground")
        ready = asyncio.create_task(self.ready.wait())
        try:
            await asyncio.wait((self._running, ready), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # __aexit__ is not called if __aenter__ is cancelled.
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
        """Cancel `run`; raise its error if it failed."""
        if self._running is None:
            return
        self._running.cancel()
        await asyncio.wait((self._running,))
        if not self._running.cancelled():
            self._running.result()

    async def alongside(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work`; cancel it and raise if the playground fails meanwhile."""
        task = asyncio.create_task(work, name="alongside the playground")
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
        """Run until cancelled, then leave no process, file or socket.

        Raises:
            ExceptionGroup: of the errors of its parts: ChildFailed, BadFile, NoAddress, OSError.
            FileExistsError: of `kubeconfig_out`.
            NoWorkspace: no folder is usable for its files.
        """
        access = new_access()
        with self._place() as place:
            async with self._make_server(access) as server:
                self.config = access.config(server.url, ADMIN)
                self._write_kubeconfigs(server, access, place.folder)
                async with (
                    _client(self.config, "kubectl") as self.client,
                    _client(access.config(server.url, KUBELETS), "kubelet") as kubelets,
                    _client(access.config(server.url, SCHEDULER), "kube-scheduler") as scheduler,
                    _client(
                        access.config(server.url, CONTROLLERS), "kube-controller-manager"
                    ) as controllers,
                ):
                    await self._run_cluster(place, kubelets, scheduler, controllers)

    def _make_server(self, access: Access) -> EmbeddedApiServer:
        return EmbeddedApiServer(
            crds=all_crds(),
            validators=MARKER_VALIDATORS,
            tokens=access.tokens,
            tls=access.tls,
            logs=self._open_log,
            commands=self._start_command,
        )

    def _open_log(self, container_id: str, wanted: LogOptions) -> AsyncIterator[bytes]:
        return self._container(container_id)[1].log.read(wanted)

    def _start_command(
        self, container_id: str, command: Sequence[str], files: Sequence[int]
    ) -> Coroutine[Any, Any, int]:
        runtime, container = self._container(container_id)
        try:
            return runtime.exec(container, command, files)
        except (NotRunning, CannotStart) as error:
            raise NotOnNode(f"OCI runtime exec failed: exec failed: {error}: unknown") from error

    def _container(self, container_id: str) -> tuple[LocalRuntime, LocalContainer]:
        for node in self.nodes:
            with suppress(NoSuchContainer):
                return node.runtime, node.runtime.container(container_id)
        raise NotOnNode(f"container {container_id} was removed")

    def _make_node(self, name: str, client: RestClient, place: Workspace) -> EmbeddedNode:
        mark = f"{place.mark}/{name}"
        return EmbeddedNode(name=name, client=client, folder=place.folder, mark=mark)

    @contextmanager
    def _place(self) -> Iterator[Workspace]:
        """The workspace. The extra kubeconfig is created first, so that the workspace removes only our own file."""
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
            text = server.kubeconfig(token=access.token(ADMIN))
            fill_private(self._kubeconfig_out, text)

    async def _run_cluster(
        self,
        place: Workspace,
        kubelets: RestClient,
        scheduler: RestClient,
        controllers: RestClient,
    ) -> None:
        applier = Applier(self.client, self._on_note)
        await applier.apply([_namespace(name) for name in NAMESPACES])
        self._nodes = [
            self._make_node(f"node-{number}", kubelets, place) for number in range(self._node_count)
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
            cluster.create_task(ReplicaSetController(controllers).run(), name="ReplicaSets")
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
            self._on_note(f"the {name} ended with exit code {exit_code}; it is restarted")


def _kubeconfig_of(program: str, folder: Path) -> Path:
    return folder / f"{program}.kubeconfig"


def _client(config: ClusterConfig, field_manager: str) -> RestClient:
    return RestClient(config=config, field_manager=field_manager, user_agent=USER_AGENT)


def _namespace(name: str) -> LoadedObject:
    return LoadedObject(
        f"Namespace {name}",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
    )
