"""Options and output shared by `status` and `explain`."""

import json
import shutil
import sys
from collections.abc import Callable, Iterable
from typing import Any

import click
import msgspec
import yaml

from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.cli.completion import complete_namespaces
from kruise_probe.cli.flag_types import LABEL_KEYS, NAMESPACE, flag
from kruise_probe.inspection.selectors import did_you_mean


def query_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds -n, --kubeconfig, --system-namespace, --allowed-label-keys."""
    for add in (
        flag(
            "--allowed-label-keys",
            type=LABEL_KEYS,
            default="",
            metavar="KEY,…",
            help="The same value as the manager's flag.",
        ),
        flag(
            "--system-namespace",
            type=NAMESPACE,
            default=SYSTEM_NAMESPACE,
            envvar=["POD_NAMESPACE"],
            help="Namespace of kruise-probe's own Leases.",
        ),
        flag(
            "--kubeconfig",
            type=click.Path(dir_okay=False),
            help="Kubeconfig file. Without it: KUBECONFIG, then ~/.kube/config.",
        ),
        click.option(
            "-n",
            "--namespace",
            type=NAMESPACE,
            shell_complete=complete_namespaces,
            help="Namespace to read.  [default: that of the context]",
        ),
    ):
        command = add(command)
    return command


def output_option(*forms: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        "-o",
        "--output",
        type=click.Choice(forms),
        default=forms[0],
        show_default=True,
        help="Output format.",
    )


def document_text(view: msgspec.Struct, form: str) -> str:
    """The view as `json` or `yaml`."""
    plain = msgspec.to_builtins(view)
    if form == "json":
        return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120)


def terminal_width() -> int:
    """Columns of the terminal; 0 if standard output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def not_found(kind: str, namespace: str, name: str, names: Iterable[str]) -> str:
    """The error message if `name` does not exist."""
    hint = did_you_mean(name, sorted(names)) or " Choose another namespace with -n."
    return f"{kind} {namespace}/{name} does not exist.{hint}"
