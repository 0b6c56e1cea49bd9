"""Options and output shared by `status`, `explain` and `try`. The options have kubectl's names and meanings."""

import json
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import click
import msgspec
import yaml

from kruise_probe.api.labels import Selector, compile_selector
from kruise_probe.api.names import GROUP, SYSTEM_NAMESPACE
from kruise_probe.api.spelling import did_you_mean
from kruise_probe.cli.completion import complete_namespaces
from kruise_probe.cli.flag_types import (
    GO_BOOL,
    IMPERSONATED,
    LABEL_KEYS,
    NAMESPACE,
    Decorator,
    flag,
)
from kruise_probe.cli.query_client import config_of
from kruise_probe.client.config import ClusterConfig
from kruise_probe.inspection.selectors import parse_selector


class LabelSelectorType(click.ParamType[Selector]):
    """`app=web,tier in (a,b),!draft`, as `kubectl -l`."""

    name = "selector"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Selector:
        try:
            return compile_selector(parse_selector(str(value)))
        except ValueError as error:
            return self.fail(str(error), param, ctx)


class QueryCommand(click.Command):
    """A command whose boolean flags may have a value after `=`, as in Go: `--watch`, `--watch=true`, `-w=false`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        flags = {
            name: each
            for each in self.params
            if isinstance(each, click.Option) and each.is_flag
            for name in each.opts
        }
        words: list[str] = []
        for index, word in enumerate(args):
            if word == "--":
                words += args[index:]
                break
            name, equals, value = word.partition("=")
            flag = flags.get(name) if equals else None
            if flag is None:
                words.append(word)
            elif ctx.resilient_parsing or GO_BOOL.convert(value, flag, ctx):
                words.append(name)
            else:  # the last value wins
                words = [each for each in words if each not in flag.opts]
        return super().parse_args(ctx, words)


@dataclass(frozen=True, kw_only=True)
class QueryFlags:
    """The parsed options of `query_flags`."""

    namespace: str | None
    kubeconfig: str | None
    context: str
    cluster: str
    user: str
    as_user: str
    as_group: tuple[str, ...]
    system_namespace: str
    allowed_label_keys: frozenset[str]
    output: str
    selector: Selector | None = None

    def load_config(self) -> ClusterConfig:
        return config_of(vars(self))


_FLAGS: Final[tuple[Decorator, ...]] = (
    flag(
        "--kubeconfig",
        type=click.Path(dir_okay=False),
        help="Kubeconfig file. Without it: KUBECONFIG, then ~/.kube/config, then the pod's own service account.",
    ),
    click.option("--context", default="", help="Context of the kubeconfig.  [default: current]"),
    click.option(
        "--cluster", default="", help="Cluster of the kubeconfig.  [default: of the context]"
    ),
    click.option("--user", default="", help="User of the kubeconfig.  [default: of the context]"),
    click.option("--as", "as_user", type=IMPERSONATED, default="", help="User to impersonate."),
    click.option(
        "--as-group", type=IMPERSONATED, multiple=True, help="Group to impersonate; repeatable."
    ),
    flag(
        "--system-namespace",
        type=NAMESPACE,
        default=SYSTEM_NAMESPACE,
        envvar=["POD_NAMESPACE"],
        help="Namespace of kruise-probe's own Leases.",
    ),
    flag(
        "--allowed-label-keys",
        type=LABEL_KEYS,
        default="",
        metavar="KEY,…",
        help="The same value as the manager's flag.",
    ),
)


_SELECTOR: Final[Decorator] = click.option(
    "-l",
    "--selector",
    type=LabelSelectorType(),
    metavar="SELECTOR",
    help="Only objects with these labels, such as app=web,tier!=test.",
)

POD_KINDS: Final = frozenset({"pod", "pods", "po"})
MARKER_KINDS: Final = frozenset(
    {
        "podprobemarker",
        "podprobemarkers",
        "ppm",
        f"podprobemarkers.{GROUP}",
        f"podprobemarker.{GROUP}",
    }
)


def query_flags(*forms: str, selector: bool = True) -> Decorator:
    """Adds the options of `QueryFlags`; the first form of output is the default. `selector` adds -l."""
    in_namespace: Decorator = click.option(
        "-n",
        "--namespace",
        type=NAMESPACE,
        shell_complete=complete_namespaces,
        help="Namespace to read.  [default: that of the context]",
    )
    output: Decorator = click.option(
        "-o",
        "--output",
        type=click.Choice(forms),
        default=forms[0],
        show_default=True,
        help="Output format.",
    )

    def add_to(command: Callable[..., Any]) -> Callable[..., Any]:
        selectors = (_SELECTOR,) if selector else ()
        for add in (output, *reversed(_FLAGS), *selectors, in_namespace):
            command = add(command)
        return command

    return add_to


def name_of(argument: str, kinds: Iterable[str], hint: str) -> str:
    """The name in `NAME` or `KIND/NAME`, as kubectl accepts it.

    Raises:
        click.UsageError: another kind; `hint` says what to do.
    """
    kind, slash, name = argument.rpartition("/")
    if slash and kind.lower() not in kinds:
        raise click.UsageError(f"{argument!r}: {hint}")
    return name


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
