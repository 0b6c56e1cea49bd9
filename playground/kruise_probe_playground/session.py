"""A running playground: API server, nodes, manager and daemons, started in order, and removed without a trace.

Manager and daemons are the product's own programs, `python -m kruise_probe manager` and `… daemon`, in processes of
their own. API server and nodes run in this process.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.rest import RestClient
from kruise_probe.manifests.crds import all_crds
from kruise_probe_playground.access import Access, new_access
from kruise_probe_playground.apiserver.logs import Containers, NotOnNode
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
from kruise_probe_playground.node.runtime import LocalRuntime
from kruise_probe_playground.node.scheduler import Scheduler
from kruise_probe_playground.programs import Child, daemon, manager
from kruise_probe_playground.replicas import ReplicaSetController
from kruise_probe_playground.workspace import (
    NoWorkspace,
    Workspace,
    create_private,
    fill_private,
    workspace,
)

USER_AGENT = "kruise-probe-playground"
USER = "kubernetes-admin"
FIELD_MANAGERS = ("kubectl", "kubelet", "kube-scheduler", "kube-controller-manager")
"""Of the clients of this process."""


class NodeContainers(Containers):
    """The containers of these nodes."""

    def __init__(self, nodes: Sequence[EmbeddedNode]) -> None:
        self._nodes = nodes

    def read_log(
        self, container: str, *, follow: bool, tail_lines: int | None
    ) -> AsyncIterator[bytes]:
        return self._find(container)[1].log.read(
            follow=follow,
            tail_lines=tail_lines,
        )

    def start_command(
        self, container: str, command: Sequence[str], files: Sequence[int]
    ) -> Coroutine[Any, Any, int]:
        runtime, found = self._find(container)
        try:
            return runtime.exec(found, command, files)
        except (NotRunning, CannotStart) as error:
            raise NotOnNode(f"OCI runtime exec failed: exec failed: {error}: unknown") from error

    def _find(self, container: str) -> tuple[LocalRuntime, LocalContainer]:
        for node in self._nodes:
            with suppress(NoSuchContainer):
                return node.runtime, node.runtime.container(container)
        raise NotOnNode(f"container {container} was removed")


class Playground:
    """A small cluster that runs for the length of an `async with`.

    Args:
        documents: applied when everything has started.
        nodes: how many; each has a daemon.
        kubeconfig_out: a second path for the kubeconfig. It must not exist, and is removed at the end.
        on_note: called with a sentence when an object is skipped, or a program ends unexpectedly.

    Attributes:
        kubeconfig: the one with the token of this session.
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
        on_note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.ready = asyncio.Event()
        self._documents = documents
        self._node_count = nodes
        self._kubeconfig_out = kubeconfig_out
        self._on_note = on_note
        self.nodes: list[EmbeddedNode] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start everything.

        Raises:
            ExceptionGroup: of the errors of its parts: ChildFailed, BadFile, NoAddress, OSError. Later, such an error
                cancels the block, and leaving it raises the group.
            FileExistsError: of `kubeconfig_out`.
            NoWorkspace: no folder is usable for its files.
        """
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        """Leave no process, file or socket."""
        return await self._stack.__aexit__(*error)

    async def _start(self, stack: AsyncExitStack) -> None:
        access = new_access()
        place = stack.enter_context(self._place())
        server = await stack.enter_async_context(self._make_server(access))
        self.config = access.config(server.url)
        self._write_kubeconfig(server, access, place.folder)
        self.client, kubelets, scheduler, controllers = [
            await stack.enter_async_context(
                RestClient(
                    config=access.config(server.url),
                    field_manager=name,
                    user_agent=USER_AGENT,
                )
            )
            for name in FIELD_MANAGERS
        ]
        applier = Applier(self.client, self._on_note)
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": SYSTEM_NAMESPACE},
        }
        await applier.apply([LoadedObject(f"Namespace {SYSTEM_NAMESPACE}", namespace)])
        names = [f"node-{number}" for number in range(self._node_count)]
        self.nodes += [
            EmbeddedNode(
                name=name, client=kubelets, folder=place.folder, mark=f"{place.mark}/{name}"
            )
            for name in names
        ]
        self.manager = manager(
            self.kubeconfig,
            place,
            on_end=self._note_end,
        )
        self.daemons = {
            node.name: daemon(
                self.kubeconfig,
                place,
                node,
                on_end=self._note_end,
            )
            for node in self.nodes
        }

        def spawn(
            group: asyncio.TaskGroup,
            name: str,
            work: Coroutine[Any, Any, None],
        ) -> None:
            stack.callback(group.create_task(work, name=name).cancel)

        cluster = await stack.enter_async_context(asyncio.TaskGroup())
        for node in self.nodes:
            spawn(cluster, node.name, node.run())
        spawn(
            cluster,
            "scheduler",
            Scheduler(scheduler, nodes=names).run(),
        )
        spawn(cluster, "ReplicaSets", ReplicaSetController(controllers).run())
        programs = await stack.enter_async_context(asyncio.TaskGroup())  # they end before the nodes
        spawn(programs, "manager", self.manager.run())
        for node in self.nodes:
            await node.ready.wait()
            spawn(
                programs,
                f"daemon of {node.name}",
                self.daemons[node.name].run(),
            )
        await applier.apply(self._documents)
        self.ready.set()

    def _make_server(self, access: Access) -> EmbeddedApiServer:
        return EmbeddedApiServer(
            crds=all_crds(),
            validators=MARKER_VALIDATORS,
            tokens={access.token: USER},
            tls=access.tls,
            containers=NodeContainers(self.nodes),
        )

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

    def _write_kubeconfig(self, server: EmbeddedApiServer, access: Access, folder: Path) -> None:
        """Write the kubeconfigs, and a link to the command: its own folder may have a long path."""
        self.folder = folder
        (folder / "kruise-probe").symlink_to(Path(sys.executable).parent / "kruise-probe")
        self.kubeconfig = folder / "kubeconfig"
        server.write_kubeconfig(self.kubeconfig, token=access.token)
        if self._kubeconfig_out:
            fill_private(self._kubeconfig_out, server.kubeconfig(token=access.token))

    def _note_end(self, name: str, exit_code: int) -> None:
        self._on_note(f"the {name} ended with exit code {exit_code}; it is restarted")
