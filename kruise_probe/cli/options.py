"""Flags shared by manager and daemon."""

from collections.abc import Callable
from typing import Any, Final

import click

from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.cli.feature_gates import describe_gates
from kruise_probe.cli.flag_types import GATES, NAMESPACE, bool_flag, flag
from kruise_probe.client.rest import READ_DEADLINE_SECONDS

SILENCE_SECONDS: Final = 2 * READ_DEADLINE_SECONDS
"""A watch without activity for this long has failed to reconnect at least once; the process is not ready."""

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
        help="/metrics over TLS too, and only for bearer tokens whose user may get it.",
    ),
    flag(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        help="json: one object per line.",
    ),
    flag(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        help="Lowest level to log.",
    ),
)


def shared_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --kubeconfig, --system-namespace, --feature-gates, --metrics-secure, --log-format, --log-level."""
    for add in reversed(_SHARED):
        command = add(command)
    return command
