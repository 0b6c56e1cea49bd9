"""`kruise-probe manager`: its flags, and how the manager is built from them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import click
import structlog

from kruise_probe import version
from kruise_probe.api.names import LEADER_ELECTION_ID, MANAGER_FIELD_MANAGER
from kruise_probe.api.times import utc_now
from kruise_probe.api.v1alpha1 import PodProbeMarker
from kruise_probe.cli.feature_gates import SERVERLESS
from kruise_probe.cli.flag_types import (
    DURATION,
    LABEL_KEYS,
    LISTEN_ADDRESS,
    OBJECT_NAME,
    OPTIONAL_NAMESPACE,
    Count,
    Rate,
    bool_flag,
    flag,
)
from kruise_probe.cli.options import SharedFlags, probing_enabled, shared_flags
from kruise_probe.client.config import ClusterConfig, load_config
from kruise_probe.client.rest import RestClient
from kruise_probe.client.threads import run_in_daemon_thread
from kruise_probe.controllers import product
from kruise_probe.controllers.caches import Informers
from kruise_probe.manager.leader_election import JITTER_FACTOR
from kruise_probe.manager.process import run_until_signalled
from kruise_probe.manager.runnables import Runnable
from kruise_probe.runtime import LeaderElection, Manager
from kruise_probe.serving.authorization import MAX_REVIEWS, MetricsGuard
from kruise_probe.serving.exposition import MetricsHandler
from kruise_probe.serving.health import Checks, health_handlers
from kruise_probe.serving.http_server import HttpHandler
from kruise_probe.serving.logs import configure_logs
from kruise_probe.serving.server import HttpServer
from kruise_probe.serving.stalls import StallDetector
from kruise_probe.serving.tls import SelfSignedCertificate, ServerTls

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class ManagerFlags(SharedFlags):
    """The parsed command line of the manager; durations in seconds."""

    metrics_addr: str
    health_probe_addr: str
    enable_leader_election: bool
    leader_election_namespace: str | None
    leader_election_id: str
    leader_election_lease_duration: float
    leader_election_renew_deadline: float
    leader_election_retry_period: float
    namespace: str
    allowed_label_keys: frozenset[str]
    sync_period: float
    message_update_interval: float
    podprobemarker_workers: int
    nodepodprobe_workers: int
    rest_config_qps: float
    rest_config_burst: int
    controller_cache_sync_timeout: float
    webhook_addr: str
    webhook_cert_dir: str
    webhook_client_ca_file: str

    @property
    def election_namespace(self) -> str:
        return self.leader_election_namespace or self.system_namespace


_WORKERS = Count(min=1)
USER_AGENT: Final = f"{MANAGER_FIELD_MANAGER}/{version.TEXT}"


_HELP = """Writes the probes of PodProbeMarkers to NodePodProbes, and their results to pods.

\b
kruise-probe manager --kubeconfig ~/.kube/config --enable-leader-election=false
"""


@click.command(help=_HELP, short_help="Write probes to nodes, and results to pods.")
@shared_flags
@flag(
    "--metrics-addr",
    type=LISTEN_ADDRESS,
    default=":8080",
    help="Address of /metrics; 0 disables it.",
)
@flag(
    "--health-probe-addr",
    type=LISTEN_ADDRESS,
    default=":8000",
    help="Address of /healthz and /readyz; 0 disables them.",
)
@bool_flag(
    "--enable-leader-election",
    default=True,
    help="Elect one active manager; the others are standbys.",
)
@flag(
    "--leader-election-namespace",
    type=OPTIONAL_NAMESPACE,
    help="Namespace of the Lease.  [default: the system namespace]",
)
@flag(
    "--leader-election-id",
    type=OBJECT_NAME,
    default=LEADER_ELECTION_ID,
    help="Name of the Lease.",
)
@flag(
    "--leader-election-lease-duration",
    type=DURATION,
    default="15s",
    help="How long a standby waits after the last renewal before it takes over.",
)
@flag(
    "--leader-election-renew-deadline",
    type=DURATION,
    default="10s",
    help="How long the leader continues without a renewal.",
)
@flag(
    "--leader-election-retry-period",
    type=DURATION,
    default="2s",
    help="How often to renew or to try to acquire the Lease.",
)
@flag(
    "--namespace",
    type=OPTIONAL_NAMESPACE,
    default="",
    help="Reconcile markers and pods of this namespace only.",
)
@flag(
    "--allowed-label-keys",
    type=LABEL_KEYS,
    default="",
    metavar="KEY,…",
    help="Reserved label keys that policies may write. Give `kruise-probe manifests` the same, for the CRD.",
)
@flag(
    "--sync-period",
    type=DURATION,
    default="10m",
    help="How often to reconcile every key again (resync); 0 for never.",
)
@flag(
    "--message-update-interval",
    type=DURATION,
    default="10s",
    help="Minimum interval between writes of a pod if only messages and values from messages change, after a burst of 3; 0 for no limit.",
)
@flag(
    "--podprobemarker-workers", type=_WORKERS, default=4, help="Concurrent reconciles of markers."
)
@flag("--nodepodprobe-workers", type=_WORKERS, default=48, help="Concurrent reconciles of nodes.")
@flag(
    "--rest-config-qps",
    type=Rate(),
    default=0.0,
    help="Maximum requests per second to the API server; 0 for no limit.",
)
@flag(
    "--rest-config-burst",
    type=Count(min=0),
    default=0,
    help="Burst of requests above --rest-config-qps.",
)
@flag(
    "--controller-cache-sync-timeout",
    type=DURATION,
    default="2m",
    help="Timeout of the initial cache sync.",
)
@flag(
    "--webhook-addr",
    type=LISTEN_ADDRESS,
    default="0",
    help="Address of the admission webhook, such as :9443; 0 disables it.",
)
@flag(
    "--webhook-cert-dir",
    default="",
    help="Folder of tls.crt and tls.key.  [default: certificates of its own, in a Secret]",
)
@flag(
    "--webhook-client-ca-file",
    default="",
    metavar="FILE",
    help="CA of the API servers' client certificates; requests without one are refused.  [default: none is needed]",
)
def manager(**flags: Any) -> None:
    parsed = ManagerFlags(**flags)
    check_durations(parsed)
    configure_logs(format=parsed.log_format, level=parsed.log_level)
    run_until_signalled(run_manager(parsed), program="kruise-probe")


def check_durations(flags: ManagerFlags) -> None:
    """Refuse durations with which no manager could start or two managers could lead at the same time.

    Raises:
        click.UsageError: names the flags, and the valid range.
    """
    if not flags.controller_cache_sync_timeout:
        raise click.UsageError("--controller-cache-sync-timeout must be greater than 0, such as 2m")
    if not flags.enable_leader_election:
        return
    lease, renew = flags.leader_election_lease_duration, flags.leader_election_renew_deadline
    retry = flags.leader_election_retry_period
    if int(lease) <= renew:  # a Lease holds whole seconds
        raise click.UsageError(
            f"--leader-election-lease-duration ({lease:g}s) in whole seconds must be greater than "
            f"--leader-election-renew-deadline ({renew:g}s): write {int(renew) + 1}s or more"
        )
    if renew <= JITTER_FACTOR * retry:
        raise click.UsageError(
            f"--leader-election-renew-deadline ({renew:g}s) must be greater than {JITTER_FACTOR} times "
            f"--leader-election-retry-period ({retry:g}s)"
        )
    if retry <= 0:
        raise click.UsageError("--leader-election-retry-period must be greater than 0, such as 2s")


async def run_manager(flags: ManagerFlags) -> None:
    """Build and run the manager; `Manager` defines the start order."""
    health, ready = Checks(), Checks()
    stalls = StallDetector()
    health.add("loop", stalls.check)
    ready.add("loop", stalls.check)
    metrics: HttpHandler = MetricsHandler()
    guard = MetricsGuard(metrics)
    services = [stalls, *_servers(flags, health, ready, guard if flags.metrics_secure else metrics)]
    config = await run_in_daemon_thread(partial(load_config, flags.kubeconfig))
    _log.info("starting", version=version.TEXT, server=config.server)
    async with _review_client(config) as reviewer:
        guard.connect(reviewer)
        manager = Manager(
            config,
            name=MANAGER_FIELD_MANAGER,
            namespace=flags.namespace,
            leader_election=_election(flags) if flags.enable_leader_election else False,
            resync_seconds=flags.sync_period,
            cache_sync_timeout_seconds=flags.controller_cache_sync_timeout,
            health=health,
            ready=ready,
            user_agent=USER_AGENT,
            qps=flags.rest_config_qps,
            burst=flags.rest_config_burst,
        )
        enabled = probing_enabled(flags.feature_gates)
        informers = product.build(manager, _options(flags)) if enabled else None
        services += _webhook(manager, flags, informers)
        for each in services:
            manager.add_service(each)
        await manager.start()


def _servers(
    flags: ManagerFlags, health: Checks, ready: Checks, metrics: HttpHandler
) -> list[Runnable]:
    """The HTTP servers, already bound, so that a port in use is the first error that the user sees."""
    tls = ServerTls(required=False) if flags.metrics_secure else None
    scraped = HttpServer(
        flags.metrics_addr,
        flag="--metrics-addr",
        handlers={"/metrics": metrics},
        tls=tls,
    )
    probes = HttpServer(
        flags.health_probe_addr,
        flag="--health-probe-addr",
        handlers=health_handlers(health=health, ready=ready),
    )
    scraped.bind()
    probes.bind()
    return [probes, scraped, *([SelfSignedCertificate(tls)] if tls else [])]


def _webhook(
    manager: Manager, flags: ManagerFlags, informers: Informers | None
) -> Sequence[Runnable]:
    """The webhook, if enabled. It also serves in a standby, so its client does not check leadership."""
    if not flags.webhook_addr:
        return ()
    # lazy: cryptography takes 10 MB
    from kruise_probe.webhook.server import WebhookOptions, build_webhook

    options = WebhookOptions(
        address=flags.webhook_addr,
        system_namespace=flags.system_namespace,
        serverless=flags.feature_gates.enabled(SERVERLESS),
        certificate_folder=flags.webhook_cert_dir,
        allowed_labels=flags.allowed_label_keys,
        client_ca_file=flags.webhook_client_ca_file,
    )
    markers = informers.markers.lister.list if informers else tuple[PodProbeMarker, ...]

    def markers_of(namespace: str) -> Iterator[PodProbeMarker]:
        return (each for each in markers() if each.key.namespace == namespace)

    webhook = build_webhook(manager.unfenced, options, markers_of=markers_of, now=utc_now)
    manager.ready.add("webhook", webhook.check)
    return webhook.certificates, webhook.server


def _review_client(config: ClusterConfig) -> RestClient:
    """A separate client, so that requests to /metrics share no connections and no rate limit with the Lease."""
    return RestClient(
        config=config,
        field_manager=MANAGER_FIELD_MANAGER,
        user_agent=USER_AGENT,
        max_in_flight=2 * MAX_REVIEWS,
    )


def _election(flags: ManagerFlags) -> LeaderElection:
    return LeaderElection(
        namespace=flags.election_namespace,
        lease=flags.leader_election_id,
        lease_duration_seconds=flags.leader_election_lease_duration,
        renew_deadline_seconds=flags.leader_election_renew_deadline,
        retry_period_seconds=flags.leader_election_retry_period,
    )


def _options(flags: ManagerFlags) -> product.ManagerOptions:
    return product.ManagerOptions(
        system_namespace=flags.system_namespace,
        allowed_labels=flags.allowed_label_keys,
        serverless=flags.feature_gates.enabled(SERVERLESS),
        marker_workers=flags.podprobemarker_workers,
        node_workers=flags.nodepodprobe_workers,
        message_update_interval_seconds=flags.message_update_interval,
    )
