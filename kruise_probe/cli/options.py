"""Flags of both manager and daemon, and the feature gates that enable them."""

from dataclasses import dataclass

import click
import structlog

from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.cli.feature_gates import (
    DAEMON,
    PROBE_MARKERS,
    FeatureGates,
    describe_gates,
)
from kruise_probe.cli.flag_types import GATES, GO_BOOL, NAMESPACE, flag
from kruise_probe.serving.logs import FORMATS, LEVELS

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class SharedFlags:
    """Flags of both manager and daemon."""

    kubeconfig: str | None = flag(
        "Kubeconfig file. Without it: KUBECONFIG, then the pod's own service account, then ~/.kube/config.",
        click.Path(),
        metavar="FILE",
        group="Cluster",
    )
    system_namespace: str = flag(
        "Namespace of kruise-probe's own Leases.",
        NAMESPACE,
        SYSTEM_NAMESPACE,
        envvar=["POD_NAMESPACE"],
        group="Cluster",
    )
    metrics_secure: bool = flag(
        "Require a bearer token for /metrics. Its user needs permission to get /metrics.",
        GO_BOOL,
        False,
        group="Metrics and health",
    )
    log_format: str = flag(
        "json: one object per line.", click.Choice(FORMATS), "text", group="Logs"
    )
    log_level: str = flag("Lowest level to log.", click.Choice(LEVELS), "info", group="Logs")
    feature_gates: FeatureGates = flag(describe_gates(), GATES, "", metavar="NAME=BOOL,…")


def probing_enabled(gates: FeatureGates) -> bool:
    """Whether manager and daemon have anything to do; if not, log which gates are off."""
    off = [gate.name for gate in (PROBE_MARKERS, DAEMON) if not gates.enabled(gate)]
    if off:
        _log.warning("nothing to do: a feature gate is off", gates=off)
    return not off
