"""`kruise-probe daemon`: its flags, and how the daemon is built from them."""

import asyncio
import resource
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import click
import structlog
from prometheus_client import REGISTRY

from kruise_probe import __version__
from kruise_probe.api.caches import BUDGET, DAEMON_BYTES
from kruise_probe.api.names import DAEMON_FIELD_MANAGER, EVENT_COMPONENT
from kruise_probe.api.node_pod_probe import NodePodProbe
from kruise_probe.api.resources import NODE_POD_PROBES
from kruise_probe.api.times import utc_now
from kruise_probe.cli.flag_types import (
    DURATION,
    OPTIONAL_OBJECT_NAME,
    Parsed,
    duration,
    flag,
    flag_command,
    number,
    port_flag,
)
from kruise_probe.cli.options import (
    HEALTH,
    METRICS,
    Port,
    ProcessContext,
    SharedFlags,
    probing_enabled,
    serving,
    user_agent,
)
from kruise_probe.client.pool import Pool
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.daemon.cri.containers import ContainerWatcher
from kruise_probe.daemon.cri.endpoints import NodeRuntime
from kruise_probe.daemon.desired import NodeAddresses
from kruise_probe.daemon.heartbeat import RENEW_SECONDS
from kruise_probe.daemon.metrics import PlacesCollector
from kruise_probe.daemon.own_reads import NodeReader
from kruise_probe.daemon.places import EXECS, SOCKETS, Places
from kruise_probe.daemon.probers import prober_for
from kruise_probe.daemon.supervisor import run_supervisor
from kruise_probe.daemon.threads import Threads
from kruise_probe.daemon.worker import WorkerContext
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.runtime.output import unblock_output
from kruise_probe.runtime.process import configure_logs, run_until_signalled
from kruise_probe.runtime.recorder import EventRecorder
from kruise_probe.serving.sockets import BindAddress

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def _endpoint(text: str) -> str:
    if "," in text:
        raise ValueError(f"{text!r} names several sockets; repeat --cri-endpoint for each socket")
    return text


@dataclass(frozen=True, kw_only=True)
class DaemonFlags(SharedFlags):
    """The command line of the daemon; durations in seconds."""

    addr: BindAddress | None = port_flag(
        "Address of /healthz, /readyz and /metrics; 0 disables them.", default=":10221"
    )
    node_name: str = flag(
        "Name of this node.", OPTIONAL_OBJECT_NAME, "", envvar=["NODE_NAME"], group="Node"
    )
    cri_endpoint: tuple[str, ...] = flag(
        "Socket of the container runtime. Repeat the flag, or separate sockets with commas in the variable, to try "
        "several in order.",
        Parsed("endpoint", _endpoint),
        multiple=True,
        metavar="unix:///…",
        show_default="the sockets of known runtimes",
        group="Node",
    )
    max_concurrent_execs: int = flag(
        "Maximum concurrent commands of exec probes on this node, shared by namespace and pod.",
        number(1),
        16,
    )
    message_sync_interval: float = flag(
        "Minimum interval between two messages of a probe while its state stays the same.",
        DURATION,
        "2s",
    )
    result_refresh_interval: float = flag(
        "How often an unchanged result is published again.", duration(at_least=1.0), "10m"
    )
    lease_renew_interval: float = flag(
        "How long after a write of results or a renewal the daemon renews its Lease; without probes it does not.",
        duration(at_least=1.0, at_most=RENEW_SECONDS),
        "20s",
    )


RESERVED_FILES: Final = 448
"""More than the connections of --addr, of the API server and of the runtime, and what Python itself opens."""

MAX_SOCKETS: Final = 4096
"""More attempts at once would use more memory and CPU than a probe daemon should."""

NO_WORK_SECONDS: Final = 10.0
"""Delay of the warning about a missing NodePodProbe; a running manager creates it well within this time."""


@flag_command(DaemonFlags)
def daemon(flags: DaemonFlags) -> None:
    """Probes the containers of this node and publishes the results.

    \b
    kruise-probe daemon --node-name NODE --cri-endpoint unix:///run/crio/crio.sock
    """
    if not flags.node_name:
        raise click.UsageError("--node-name is missing; set it, or the variable NODE_NAME")
    try:
        runtime = NodeRuntime(flags.cri_endpoint)
    except ValueError as error:
        raise click.UsageError(f"--cri-endpoint: {error}") from error
    unblock_output()
    configure_logs(format=flags.log_format, level=flags.log_level)
    BUDGET.limit_bytes = DAEMON_BYTES
    run_until_signalled(run_daemon(flags, runtime), program="kruise-probe")


async def run_daemon(flags: DaemonFlags, runtime: NodeRuntime) -> None:
    """Build and run the daemon, HTTP server first."""
    port = Port(
        "--addr",
        flags.addr,
        (*HEALTH, *METRICS),
    )
    async with serving(flags, DAEMON_FIELD_MANAGER, port) as context:
        if probing_enabled(flags.feature_gates):
            await _run_probes(flags, runtime, context)
        else:
            await asyncio.Event().wait()


def _runtime_problem(containers: ContainerWatcher) -> str | None:
    if containers.available:
        return None
    return containers.problem or "the containers of this node are not listed yet"


async def _run_probes(
    flags: DaemonFlags,
    runtime: NodeRuntime,
    context: ProcessContext,
) -> None:
    options: dict[str, Any] = {
        "config": context.config,
        "field_manager": DAEMON_FIELD_MANAGER,
        "user_agent": user_agent(DAEMON_FIELD_MANAGER),
        "pool": Pool(context.config),
    }
    client = RestClient(**options)
    reader = NodeReader(flags.node_name, **options) if flags.own_node_reads else client
    async with client, reader, runtime, asyncio.TaskGroup() as group:
        informer = SharedInformer(
            ResourceListerWatcher(
                reader, NODE_POD_PROBES, field_selector=f"metadata.name={flags.node_name}"
            ),
            name="nodepodprobes",
        )
        containers = ContainerWatcher(runtime)
        threads = Threads()
        execs = Places(flags.max_concurrent_execs, EXECS, threads)
        sockets = Places(socket_places(), SOCKETS, threads)
        REGISTRY.register(PlacesCollector(execs=execs, sockets=sockets))
        context.ready.add("runtime", partial(_runtime_problem, containers))
        context.ready.add_cache(informer)
        group.create_task(_warn_without_probes(informer, flags.node_name), name="no work")
        await run_supervisor(
            node_name=flags.node_name,
            informer=informer,
            client=client,
            context=WorkerContext(
                containers=containers,
                node_addresses=NodeAddresses(),
                prober_factory=partial(
                    prober_for, commands=runtime, user_agent=f"kruise-probe/{__version__}"
                ),
                execs=execs,
                sockets=sockets,
                stalled_since=context.stalls.stalled_since,
                now=utc_now,
            ),
            recorder=EventRecorder(
                client, component=EVENT_COMPONENT, host=flags.node_name, now=utc_now
            ),
            message_sync_seconds=flags.message_sync_interval,
            refresh_seconds=flags.result_refresh_interval,
            renew_seconds=flags.lease_renew_interval,
            system_namespace=flags.system_namespace,
        )


def socket_places() -> int:
    """Raise the soft limit of open files to the hard one. Return how many attempts may have a socket.

    The rest of the descriptors is for the API server, the runtime and --addr.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit = sys.maxsize if hard == resource.RLIM_INFINITY else hard
    return min(
        max(
            limit - RESERVED_FILES,
            limit // 4,
            1,
        ),
        MAX_SOCKETS,
    )


async def _warn_without_probes(informer: SharedInformer[NodePodProbe], node_name: str) -> None:
    """Log once if this node has no NodePodProbe; the usual cause is a wrong --node-name."""
    await informer.wait_for_sync()
    await asyncio.sleep(NO_WORK_SECONDS)
    if not informer.lister.list():
        _log.warning(
            "this node has no NodePodProbe; check that --node-name is the name of a Node, and that a manager runs",
            node=node_name,
        )
