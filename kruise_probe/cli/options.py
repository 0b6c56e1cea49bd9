"""Flags of both manager and daemon, and the feature gates that enable them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
import structlog

from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.cli.feature_gates import (
    DAEMON,
    PROBE_MARKERS,
    FeatureGates,
    describe_gates,
)
from kruise_probe.cli.flag_types import GATES, NAMESPACE, bool_flag, flag
from kruise_probe.serving.logs import FORMATS, LEVELS

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class SharedFlags:
    """The parsed values of `shared_flags`."""

    kubeconfig: str | None
    system_namespace: str
    feature_gates: FeatureGates
    log_format: str
    log_level: str
    metrics_secure: bool


_SHARED = (
    flag(
        "--kubeconfig",
        type=click.Path(),
        metavar="FILE",
        help="Kubeconfig file. Without it: KUBECONFIG, then the pod's own service account, then ~/.kube/config.",
    ),
    flag(
        "--system-namespace",
        type=NAMESPACE,
        default=SYSTEM_NAMESPACE,
        envvar=["POD_NAMESPACE"],
        help="Namespace of kruise-probe's own Leases.",
    ),
    flag("--feature-gates", type=GATES, default="", metavar="NAME=BOOL,…", help=describe_gates()),
    bool_flag(
        "--metrics-secure",
        default=False,
        help="Serve /metrics over HTTP and HTTPS, to bearer tokens whose user may get the path /metrics.",
    ),
    flag(
        "--log-format",
        type=click.Choice(FORMATS),
        default="text",
        help="json: one object per line.",
    ),
    flag(
        "--log-level",
        type=click.Choice(LEVELS),
        default="info",
        help="Lowest level to log.",
    ),
)


def shared_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --kubeconfig, --system-namespace, --feature-gates, --metrics-secure, --log-format, --log-level."""
    for add in reversed(_SHARED):
        command = add(command)
    return command


def probing_enabled(gates: FeatureGates) -> bool:
    """Whether manager and daemon have anything to do; if not, log which gates are off."""
    off = [gate.name for gate in (PROBE_MARKERS, DAEMON) if not gates.enabled(gate)]
    if off:
        _log.warning("nothing to do: a feature gate is off", gates=off)
    return not off
