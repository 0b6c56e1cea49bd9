"""An embedded API server behind a faulty proxy. Manager and daemon are processes; nodes and pods are hollow."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import programs
from support.api_server import ApiServer
from support.fake_runtime import ScriptedRuntime
from support.hollow import Daemons, Hollow, HollowCluster
from support.output import print_line
from support.programs import ALONE, Program
from support.proxy import FaultyProxy, faulty_proxy
from support.target import Target
from support.wire import Json

from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.rest import RestClient
from kruise_probe.manifests.crds import all_crds


@dataclass
class EmbeddedCluster(HollowCluster):
    """Manager and daemon reach the API server through `proxy`; the test itself reaches it directly."""

    server: ApiServer
    proxy: FaultyProxy
    folder: Path

    @asynccontextmanager
    async def manager(self, *flags: str) -> AsyncIterator[Program]:
        """A manager without leader election. If the test fails, the end of its log is printed."""
        kubeconfig = self.proxy.write_kubeconfig(self.folder)
        async with programs.running(
            "manager",
            kubeconfig,
            self.folder,
            ALONE,
            *flags,
        ) as program:
            try:
                yield program
            except BaseException:
                print_line(program.tail(100))
                raise

    def daemon(
        self, node: str, runtime: ScriptedRuntime, *flags: str
    ) -> AbstractAsyncContextManager[Program]:
        """A daemon of `node` with this container runtime."""
        kubeconfig = self.proxy.write_kubeconfig(self.folder)
        return programs.running_daemon(
            kubeconfig,
            self.folder,
            node,
            runtime,
            *flags,
        )


@asynccontextmanager
async def embedded_cluster(
    folder: Path, *, crds: Sequence[Json] | None = None, **options: Any
) -> AsyncIterator[EmbeddedCluster]:
    """`crds` instead of ours; `options` of the ApiServer."""
    crds = all_crds() if crds is None else crds
    async with ApiServer(crds=crds, **options) as server:
        config = ClusterConfig(server=server.url)
        client = RestClient(config=config, field_manager="kubectl", user_agent="test")
        async with client, faulty_proxy(config) as proxy, Target(client).watched() as api:
            await api.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM_NAMESPACE}})
            yield EmbeddedCluster(
                config,
                api,
                Hollow(api),
                Daemons(api),
                server,
                proxy,
                folder,
            )
