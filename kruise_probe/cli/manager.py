"""`kruise-probe manager`: its flags, and how the manager is built from them."""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import click

from kruise_probe.api.names import LEADER_ELECTION_ID, MANAGER_FIELD_MANAGER
from kruise_probe.api.times import utc_now
from kruise_probe.cli.flag_types import (
    DURATION,
    GO_BOOL,
    OBJECT_NAME,
    OPTIONAL_NAMESPACE,
    RATE,
    cluster_flag,
    flag,
    flag_command,
    label_keys_flag,
    number,
    port_flag,
)
from kruise_probe.cli.gates import SERVERLESS
from kruise_probe.cli.options import (
    HEALTH,
    METRICS,
    Port,
    SharedFlags,
    probing_enabled,
    serving,
    user_agent,
)
from kruise_probe.controllers import product
from kruise_probe.controllers.state import Informers, ManagerOptions
from kruise_probe.manager.leader_election import JITTER_FACTOR, LeaderElection
from kruise_probe.manager.manager import Manager, Runnable
from kruise_probe.runtime.output import unblock_output
from kruise_probe.runtime.process import configure_logs, run_until_signalled
from kruise_probe.serving.sockets import BindAddress

_election = partial(flag, group="Leader election")
_reconciling = partial(flag, group="Reconciling")
_webhook_flag = partial(flag, group="Webhook")


@dataclass(frozen=True, kw_only=True)
class ManagerFlags(SharedFlags):
    """The command line of the manager; durations in seconds."""

    namespace: str = cluster_flag(
        "Reconcile markers and pods of this namespace only.", OPTIONAL_NAMESPACE, ""
    )
    metrics_addr: BindAddress | None = port_flag(
        "Address of /metrics; 0 disables it.", default=":8080"
    )
    health_probe_addr: BindAddress | None = port_flag(
        "Address of /healthz and /readyz; 0 disables them.", default=":8000"
    )
    enable_leader_election: bool = _election(
        "Elect one active manager; the others are standbys.", GO_BOOL, True
    )
    leader_election_namespace: str | None = _election(
        "Namespace of the Lease.", OPTIONAL_NAMESPACE, show_default="the system namespace"
    )
    leader_election_id: str = _election(
        "Name of the Lease.",
        OBJECT_NAME,
        LEADER_ELECTION_ID,
    )
    leader_election_lease_duration: float = _election(
        "How long a standby waits after the last renewal before it takes over.", DURATION, "15s"
    )
    leader_election_renew_deadline: float = _election(
        "How long the leader continues without a renewal.", DURATION, "10s"
    )
    leader_election_retry_period: float = _election(
        "How often to renew or to try to acquire the Lease.", DURATION, "2s"
    )
    webhook_addr: BindAddress | None = port_flag(
        "Address of the admission webhook, such as :9443; 0 disables it.",
        default="0",
        group="Webhook",
    )
    webhook_cert_dir: str = _webhook_flag(
        "Folder of tls.crt and tls.key.", default="", show_default="certificates in a Secret"
    )
    webhook_client_ca_file: str = _webhook_flag(
        "CA of the API servers' client certificates; requests without one are refused.",
        default="",
        metavar="FILE",
        show_default="none is needed",
    )
    allowed_label_keys: frozenset[str] = label_keys_flag(
        "Reserved label keys that policies may write. Give `kruise-probe manifests` the same, for the CRD."
    )
    sync_period: float = _reconciling(
        "How often to reconcile every key again (resync); 0 for never.", DURATION, "10m"
    )
    message_update_interval: float = _reconciling(
        "Minimum interval between writes of a pod if only messages and values from messages change, "
        "after a burst of 3; 0 for no limit.",
        DURATION,
        "10s",
    )
    podprobemarker_workers: int = _reconciling(
        "Concurrent reconciles of markers.",
        number(1),
        4,
    )
    nodepodprobe_workers: int = _reconciling(
        "Concurrent reconciles of nodes.",
        number(1),
        48,
    )
    rest_config_qps: float = cluster_flag(
        "Maximum requests per second to the API server; 0 for no limit.", RATE, "0"
    )
    rest_config_burst: int = cluster_flag(
        "Burst of requests above --rest-config-qps.", number(0), 0
    )
    controller_cache_sync_timeout: float = _reconciling(
        "Timeout of the initial cache sync.", DURATION, "2m"
    )


@flag_command(ManagerFlags)
def manager(flags: ManagerFlags) -> None:
    """Writes the probes of PodProbeMarkers to NodePodProbes, and their results to pods.

    \b
    kruise-probe manager --kubeconfig FILE --enable-leader-election=false
    """
    check_durations(flags)
    unblock_output()
    configure_logs(format=flags.log_format, level=flags.log_level)
    run_until_signalled(run_manager(flags), program="kruise-probe")


def check_durations(flags: ManagerFlags) -> None:
    """Refuse durations with which no manager could start or two managers could lead at the same time.

    Raises:
        click.UsageError: names the flags, and the valid range.
    """
    if not flags.controller_cache_sync_timeout:
        raise click.UsageError("--controller-cache-sync-timeout must be greater than 0, such as 2m")
    if not flags.enable_leader_election:
        return
    lease = flags.leader_election_lease_duration
    renew = flags.leader_election_renew_deadline
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
    """Build and run the manager, HTTP servers first; `Manager` defines the order of the rest."""
    ports = (
        Port("--health-probe-addr", flags.health_probe_addr, HEALTH),
        Port("--metrics-addr", flags.metrics_addr, METRICS),
    )
    async with serving(flags, MANAGER_FIELD_MANAGER, *ports) as context:
        manager = Manager(
            context.config,
            name=MANAGER_FIELD_MANAGER,
            ready=context.ready,
            namespace=flags.namespace,
            leader_election=_leader_election(flags) if flags.enable_leader_election else None,
            elect_in_thread=True,
            resync_seconds=flags.sync_period,
            cache_sync_timeout_seconds=flags.controller_cache_sync_timeout,
            user_agent=user_agent(MANAGER_FIELD_MANAGER),
            qps=flags.rest_config_qps,
            burst=flags.rest_config_burst,
        )
        enabled = probing_enabled(flags.feature_gates)
        informers = product.build(manager, _options(flags)) if enabled else None
        manager.services += _webhook(manager, flags, informers)
        await manager.start()


def _webhook(
    manager: Manager, flags: ManagerFlags, informers: Informers | None
) -> Sequence[Runnable]:
    """The webhook, if enabled. It also serves in a standby, so its client does not check leadership."""
    if not flags.webhook_addr:
        return ()
    # lazy: cryptography takes 10 MB
    from kruise_probe.webhook.server import build_webhook

    webhook = build_webhook(
        manager.unfenced,
        flags.webhook_addr,
        flags.system_namespace,
        markers=informers.markers.lister.list if informers else tuple,
        now=utc_now,
        serverless=SERVERLESS.enabled(flags.feature_gates),
        certificate_folder=flags.webhook_cert_dir,
        client_ca_file=flags.webhook_client_ca_file,
        allowed_labels=flags.allowed_label_keys,
    )
    manager.ready.add("webhook", webhook.check)
    return webhook.certificates, webhook.server


def _leader_election(flags: ManagerFlags) -> LeaderElection:
    return LeaderElection(
        namespace=flags.leader_election_namespace or flags.system_namespace,
        lease=flags.leader_election_id,
        identity=f"{socket.gethostname()}_{os.getpid()}_{os.urandom(4).hex()}",
        lease_duration_seconds=flags.leader_election_lease_duration,
        renew_deadline_seconds=flags.leader_election_renew_deadline,
        retry_period_seconds=flags.leader_election_retry_period,
    )


def _options(flags: ManagerFlags) -> ManagerOptions:
    return ManagerOptions(
        system_namespace=flags.system_namespace,
        allowed_labels=flags.allowed_label_keys,
        serverless=SERVERLESS.enabled(flags.feature_gates),
        own_node_reads=flags.own_node_reads,
        marker_workers=flags.podprobemarker_workers,
        node_workers=flags.nodepodprobe_workers,
        message_update_interval_seconds=flags.message_update_interval,
    )
