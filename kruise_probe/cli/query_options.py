"""Options and output shared by `status`, `explain` and `try`. The options have kubectl's names and meanings."""

import json
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import click
import msgspec
import yaml

from kruise_probe.api.labels import Selector, compile_selector
from kruise_probe.api.names import GROUP, SYSTEM_NAMESPACE
from kruise_probe.api.spelling import did_you_mean
from kruise_probe.cli.completion import complete_namespaces
from kruise_probe.cli.flag_types import (
    LABEL_KEYS,
    NAMESPACE,
    Parsed,
    argument,
    flag,
)
from kruise_probe.cli.query_client import client_of, config_of, run_query
from kruise_probe.cli.reading import Reader
from kruise_probe.inspection.selectors import parse_selector

R = TypeVar("R")


def _selector(text: str) -> Selector:
    """`app=web,tier in (a,b),!draft`, as `kubectl -l`."""
    return compile_selector(parse_selector(text))


def _impersonated(text: str) -> str:
    """The name of a user or group, which is sent in a header."""
    if not text.isascii() or not text.isprintable():
        raise ValueError(f"{text!r} is not a name of printable ASCII characters")
    return text


def output_flag(*forms: str) -> Any:
    """The flag of the output's form; the first one is the default."""
    return flag(
        "Output format.", click.Choice(forms), forms[0], names=("-o", "--output"), env=False
    )


_connection = partial(flag, env=False, group="Cluster")
IMPERSONATED: Final = Parsed("name", _impersonated)


@dataclass(frozen=True, kw_only=True)
class QueryFlags:
    """Flags of `status`, `explain` and `try`, with kubectl's names and meanings."""

    namespace: str | None = flag(
        "Namespace to read.",
        NAMESPACE,
        names=("-n", "--namespace"),
        env=False,
        shell_complete=complete_namespaces,
        show_default="that of the context",
    )
    output: str = output_flag("table", "json", "yaml")
    allowed_label_keys: frozenset[str] = flag(
        "The same value as the manager's flag.", LABEL_KEYS, "", metavar="KEY,…"
    )
    kubeconfig: str | None = flag(
        "Kubeconfig file. Without it: KUBECONFIG, then ~/.kube/config, then the pod's own service account.",
        click.Path(dir_okay=False),
        group="Cluster",
    )
    context: str = _connection("Context of the kubeconfig.", default="", show_default="current")
    cluster: str = _connection(
        "Cluster of the kubeconfig.", default="", show_default="of the context"
    )
    user: str = _connection("User of the kubeconfig.", default="", show_default="of the context")
    as_user: str = _connection("User to impersonate.", IMPERSONATED, "", names=("--as",))
    as_group: tuple[str, ...] = _connection(
        "Group to impersonate; repeatable.", IMPERSONATED, multiple=True
    )
    system_namespace: str = flag(
        "Namespace of kruise-probe's own Leases.",
        NAMESPACE,
        SYSTEM_NAMESPACE,
        envvar=["POD_NAMESPACE"],
        group="Cluster",
    )

    def run(
        self, work: Callable[[Reader], Coroutine[Any, Any, R]], *, namespace: str | None = None
    ) -> R:
        """Run `work` with a reader of `namespace`: by default that of the flag or of the context; empty for all.

        Raises:
            FatalError: the API server failed, refused a request, or exceeded the deadline.
        """
        config = config_of(vars(self))

        async def connected() -> R:
            async with client_of(config) as client:
                reader = Reader(
                    client,
                    namespace=(self.namespace or config.namespace)
                    if namespace is None
                    else namespace,
                    system_namespace=self.system_namespace,
                    allowed_labels=self.allowed_label_keys,
                )
                return await work(reader)

        return run_query(connected(), config)


@dataclass(frozen=True, kw_only=True)
class SelectingFlags(QueryFlags):
    """Flags of the commands that take several objects."""

    selector: Selector | None = flag(
        "Only objects with these labels, such as app=web,tier!=test.",
        Parsed("selector", _selector),
        names=("-l", "--selector"),
        env=False,
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


def name_argument(metavar: str, kinds: Collection[str], hint: str, **attributes: Any) -> Any:
    """An argument of names, also as `KIND/NAME`, as kubectl accepts them; `hint` says what to do about another kind."""

    def name(text: str) -> str:
        kind, slash, name = text.rpartition("/")
        if slash and kind.lower() not in kinds:
            raise click.UsageError(f"{text!r}: {hint}")
        return name

    def names(_: click.Context, __: click.Parameter, value: Any) -> Any:
        return tuple(map(name, value)) if isinstance(value, tuple) else name(value)

    return argument(metavar, callback=names, **attributes)


def document_text(view: msgspec.Struct, form: str) -> str:
    """The view as `json` or `yaml`."""
    plain = msgspec.to_builtins(view)
    if form == "json":
        return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120)


def show(text: str) -> None:
    """Print text that has escape sequences only if they are wanted; click would remove them from a pipe."""
    click.echo(text, nl=False, color=True)


def not_found(kind: str, namespace: str, name: str, names: Iterable[str]) -> str:
    """The error message if `name` does not exist."""
    hint = did_you_mean(name, sorted(names)) or " Choose another namespace with -n."
    return f"{kind} {namespace}/{name} does not exist.{hint}"
