"""An embedded API server and what tests of faults do on it: the manager is a process of its own, daemons are hollow."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from support import programs
from support.hollow import Daemons, Hollow
from support.programs import ALONE, Program
from support.proxy import FaultyProxy, faulty_proxy
from support.saying import say
from support.world import World, following

from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.rest import RestClient
from kruise_probe.manifests.crds import all_crds
from kruise_probe.playground.apiserver.server import EmbeddedApiServer
from kruise_probe.playground.apiserver.users import NO_TOKENS
from kruise_probe.playground.raw_api import RawApi


@dataclass
class Arena:
    """A cluster without real nodes; the manager reaches the API server through `proxy`."""

    server: EmbeddedApiServer
    proxy: FaultyProxy
    api: RawApi
    world: World
    hollow: Hollow
    daemons: Daemons
    folder: Path

    @property
    def upstream(self) -> ClusterConfig:
        return ClusterConfig.plain(self.server.url)

    @asynccontextmanager
    async def manager(self, *flags: str) -> AsyncIterator[Program]:
        """A manager that leads without an election; a test that fails shows the end of its log."""
        kubeconfig = self.proxy.write_kubeconfig(self.folder)
        async with programs.running("manager", kubeconfig, self.folder, ALONE, *flags) as program:
            try:
                yield program
            except BaseException:
                say(program.tail(100))
                raise


@asynccontextmanager
async def running_arena(folder: Path) -> AsyncIterator[Arena]:
    async with EmbeddedApiServer(crds=all_crds(), tokens=NO_TOKENS) as server:
        config = ClusterConfig.plain(server.url)
        client = RestClient(config=config, field_manager="kubectl", user_agent="test")
        async with client, faulty_proxy(server.url) as proxy, following(client) as world:
            api = RawApi(client)
            await api.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM_NAMESPACE}})
            yield Arena(server, proxy, api, world, Hollow(api), Daemons(api, world), folder)
