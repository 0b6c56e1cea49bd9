"""What manager and daemon share: flags, feature gates, and what they serve while they load the kubeconfig."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import click
import structlog

from kruise_probe import __version__
from kruise_probe.blocking import run_blocking
from kruise_probe.cli.flag_types import cluster_flag, flag, switch, system_namespace_flag
from kruise_probe.cli.gates import DAEMON, PROBE_MARKERS, describe_gates, gates_flag
from kruise_probe.client.config import ClusterConfig, load_config
from kruise_probe.client.rest import RestClient
from kruise_probe.manager.manager import Runnable
from kruise_probe.runtime.process import FORMATS, LEVELS
from kruise_probe.serving.authorization import MetricsGuard
from kruise_probe.serving.health import Checks, health_handlers
from kruise_probe.serving.http_server import HttpServer
from kruise_probe.serving.metrics_page import MetricsHandler
from kruise_probe.serving.server_tls import ServerTls, self_signed_certificate
from kruise_probe.serving.sockets import BindAddress
from kruise_probe.serving.stalls import StallDetector

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class SharedFlags:
    """Flags of both manager and daemon."""

    kubeconfig: str | None = cluster_flag(
        "Kubeconfig file. Without it: KUBECONFIG, then the pod's own service account, then ~/.kube/config.",
        click.Path(),
        metavar="FILE",
    )
    system_namespace: str = system_namespace_flag()
    metrics_secure: bool = switch(
        "Require a bearer token for /metrics. Its user needs permission to get /metrics. The port speaks TLS only.",
        group="Metrics and health",
    )
    own_node_reads: bool = switch(
        "Kubernetes 1.36 or newer: the daemon reads as its node, so its token reads no other node's probes. The manager "
        "creates a role for each node. Set it for both.",
        group="Cluster",
    )
    log_format: str = flag(
        "json: one object per line.", click.Choice(FORMATS), "text", group="Logs"
    )
    log_level: str = flag(
        "Lowest level to log.",
        click.Choice(LEVELS),
        "info",
        group="Logs",
    )
    feature_gates: Mapping[str, bool] = gates_flag(describe_gates())


def probing_enabled(gates: Mapping[str, bool]) -> bool:
    """Whether manager and daemon have anything to do; if not, log which gates are off."""
    off = [gate.name for gate in (PROBE_MARKERS, DAEMON) if not gate.enabled(gates)]
    if off:
        _log.warning("nothing to do: a feature gate is off in --feature-gates", gates=off)
    return not off


HEALTH: Final = ("/healthz", "/readyz")
METRICS: Final = ("/metrics",)


class Port(NamedTuple):
    """A port of the process: the flag with its address, None if it is turned off, and the paths that it serves."""

    flag: str
    address: BindAddress | None
    paths: Sequence[str]


class ProcessContext(NamedTuple):
    """What the process has before its own work starts: the checks of /readyz, and the loaded kubeconfig."""

    ready: Checks
    stalls: StallDetector
    config: ClusterConfig


@asynccontextmanager
async def serving(
    flags: SharedFlags, field_manager: str, *ports: Port
) -> AsyncIterator[ProcessContext]:
    """Serve health and metrics; meanwhile load the kubeconfig, whose exec plugin may hang, and run the body."""
    health = Checks()
    ready = Checks()
    stalls = StallDetector()
    health.add("loop", stalls.check)
    ready.add("loop", stalls.check)
    metrics = MetricsHandler()
    guard = MetricsGuard(metrics)
    tls = ServerTls() if flags.metrics_secure else None
    handlers = health_handlers(health=health, ready=ready)
    handlers["/metrics"] = guard if tls else metrics
    servers = [
        HttpServer(
            port.address,
            flag=port.flag,
            handlers={path: handlers[path] for path in port.paths},
            tls=tls if "/metrics" in port.paths else None,
        )
        for port in ports
        if port.address
    ]
    for server in servers:
        server.bind()  # so that a port in use is the first error
    runnables: list[Runnable] = [stalls, *servers]
    if tls:
        runnables.append(self_signed_certificate(tls))
    async with asyncio.TaskGroup() as group:
        for runnable in runnables:
            group.create_task(runnable.run())
        ready.add("kubeconfig", lambda: "not loaded yet; an exec plugin may hang")
        config = await run_blocking(partial(load_config, flags.kubeconfig))
        ready.add("kubeconfig", lambda: None)
        _log.info("starting", version=__version__, server=config.server)
        # Its own client, so that reviews share no connections and no rate limit with the Lease.
        async with RestClient(
            config=config,
            field_manager=field_manager,
            user_agent=user_agent(field_manager),
        ) as reviewer:
            guard.connect(reviewer.request_raw)
            yield ProcessContext(ready, stalls, config)


def user_agent(field_manager: str) -> str:
    return f"{field_manager}/{__version__}"
