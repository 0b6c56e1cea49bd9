"""The processes of a simulation: managers and daemons, wired as the command line wires them, without HTTP servers.

Every start is a new process with a new connection. A kill cuts the connection first and then cancels the tasks, so nothing that the
process does while it ends can be seen from outside. What it had sent may still arrive.
"""

import asyncio
import errno
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from random import Random
from typing import NamedTuple, cast
from unittest.mock import patch

from prometheus_client import CollectorRegistry
from simulation.loop import PROCESS
from simulation.network import CONFIG, FaultyConnection, Sent
from simulation.servers import ApiServers
from support.fake_runtime import ScriptedRuntime

from kruise_probe.api.errors import FatalError
from kruise_probe.api.meta import HostPort
from kruise_probe.api.names import (
    DAEMON_FIELD_MANAGER,
    EVENT_COMPONENT,
    MANAGER_FIELD_MANAGER,
    SYSTEM_NAMESPACE,
)
from kruise_probe.api.resources import NODE_POD_PROBES
from kruise_probe.api.v1alpha1 import ContainerProbe
from kruise_probe.client.rest import ResourceListerWatcher
from kruise_probe.controllers import product
from kruise_probe.controllers.state import ManagerOptions
from kruise_probe.daemon import supervisor
from kruise_probe.daemon.cri.containers import ContainerWatcher
from kruise_probe.daemon.cri.grpc_runtime import GrpcRuntime
from kruise_probe.daemon.desired import NodeAddresses
from kruise_probe.daemon.places import EXECS, SOCKETS, Places
from kruise_probe.daemon.probers import prober_for
from kruise_probe.daemon.probers.prober import Prober
from kruise_probe.daemon.supervisor import run_supervisor
from kruise_probe.daemon.worker import WorkerContext
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.manager.leader_election import LeaderElection, LeaderElector
from kruise_probe.manager.manager import Manager
from kruise_probe.runtime.recorder import EventRecorder
from kruise_probe.serving.health import Checks

RESTART_SECONDS = 1.0
"""Until a process that ended by itself is started again, as by the kubelet."""

LEASE_ID = "kruise-probe-manager"


@contextmanager
def own_metrics() -> Iterator[None]:
    """Another registry for the metrics of daemons: several in one process register the same ones."""
    with patch.object(supervisor, "REGISTRY", CollectorRegistry(auto_describe=False)):
        yield


class Surroundings(NamedTuple):
    """What every process of one world shares. `log` takes process and event; `on_send` sees every request."""

    servers: ApiServers
    random: Random
    clock: Callable[[], datetime]
    log: Callable[[str, str], None]
    on_send: Callable[[Sent], None]


class SimulatedProcess(ABC):
    """A program that is started, killed and started again. `skew_seconds` is the error of its clock."""

    def __init__(self, name: str, around: Surroundings) -> None:
        self.name = name
        self.skew_seconds = 0.0
        self.server = 0
        self.connection: FaultyConnection | None = None
        self._around = around
        self._task: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> bool:
        return self._task is not None

    def start(self) -> None:
        if self._task is None:
            token = PROCESS.set(self.name)
            self._task = asyncio.create_task(self._keep_running())
            PROCESS.reset(token)

    def kill(self) -> None:
        """As SIGKILL."""
        if self.connection:
            self.connection.kill()
        self._cancel()

    def terminate(self) -> None:
        """As SIGTERM. The process may still send while it ends."""
        self._cancel()

    def _cancel(self) -> None:
        task, self._task = self._task, None
        if task:
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _keep_running(self) -> None:
        while True:
            self.connection = connection = FaultyConnection(
                self._around.servers,
                self._around.random,
                user_agent=self.name,
                on_send=self._around.on_send,
            )
            connection.server = self.server
            try:
                await self._run(connection)
            except (FatalError, BaseExceptionGroup) as error:
                self._around.log(self.name, f"ended: {error}")
                if isinstance(error, BaseExceptionGroup) and error.split(FatalError)[1]:
                    raise
            finally:
                connection.kill()
            await asyncio.sleep(RESTART_SECONDS)

    def now(self) -> datetime:
        return self._around.clock() + timedelta(seconds=self.skew_seconds)

    @abstractmethod
    async def _run(self, connection: FaultyConnection) -> None: ...


class SimulatedManager(SimulatedProcess):
    """`kruise-probe manager` with leader election."""

    elector: LeaderElector | None = None

    @property
    def leads(self) -> bool:
        return self.running and self.elector is not None and self.elector.is_leader

    async def _run(self, connection: FaultyConnection) -> None:
        identity = f"{self.name}_{self._around.random.randrange(2**32):x}"
        manager = Manager(
            CONFIG,
            name=MANAGER_FIELD_MANAGER,
            ready=Checks(),
            leader_election=LeaderElection(SYSTEM_NAMESPACE, LEASE_ID, identity),
            hostname=self.name,
            resync_seconds=600.0,
            new_client=connection.client,
            now=self.now,
        )
        product.build(manager, ManagerOptions(SYSTEM_NAMESPACE))
        self.elector = manager.elector
        await manager.start()


class SimulatedDaemon(SimulatedProcess):
    """`kruise-probe daemon` of one node."""

    def __init__(
        self, name: str, node: str, runtime: ScriptedRuntime, around: Surroundings
    ) -> None:
        super().__init__(name, around)
        self.node = node
        self.network_prober: Callable[[ContainerProbe], Prober] | None = None
        self._runtime = runtime

    async def _run(self, connection: FaultyConnection) -> None:
        client = connection.client(field_manager=DAEMON_FIELD_MANAGER)
        informer = SharedInformer(
            ResourceListerWatcher(
                client, NODE_POD_PROBES, field_selector=f"metadata.name={self.node}"
            ),
            name="nodepodprobes",
        )
        await run_supervisor(
            node_name=self.node,
            informer=informer,
            client=client,
            context=WorkerContext(
                containers=ContainerWatcher(cast(GrpcRuntime, self._runtime)),
                node_addresses=_NoAddresses(),
                prober_factory=self._prober_for,
                execs=Places(16, EXECS),
                sockets=Places(100, SOCKETS),
                stalled_since=lambda _: False,
                now=self.now,
            ),
            recorder=EventRecorder(
                client,
                component=EVENT_COMPONENT,
                host=self.node,
                now=self.now,
            ),
        )

    def _prober_for(self, entry: ContainerProbe) -> Prober:
        if self.network_prober and entry.probe.exec is None:
            return self.network_prober(entry)
        return prober_for(
            entry,
            commands=self._runtime,
            user_agent="kruise-probe/simulated",
            open_socket=_refuse,
        )


class _RefusedSocket(socket.socket):
    """No pod of a simulation listens on a port."""

    def connect_ex(self, _: object) -> int:
        return errno.ECONNREFUSED


def _refuse(_: HostPort) -> socket.socket:
    return _RefusedSocket()


class _NoAddresses(NodeAddresses):
    def refusal(self, ip: str) -> str:
        return f"{ip} is not an address of this node"
