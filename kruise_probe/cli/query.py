"""What `status`, `explain` and `try` share: flags with kubectl's names and meanings, the connection, completion, output."""

import asyncio
import json
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import click
import msgspec
import yaml

from kruise_probe import __version__
from kruise_probe.api.errors import (
    ApiError,
    ConnectionFailed,
    FatalError,
    Forbidden,
    KubeError,
    Unauthorized,
    first_of,
)
from kruise_probe.api.labels import Selector, parse_selector
from kruise_probe.api.meta import DECODE_ERRORS, ApiObject
from kruise_probe.api.names import GROUP
from kruise_probe.api.problems import did_you_mean
from kruise_probe.api.resources import MARKERS, PODS
from kruise_probe.cli.flag_types import (
    NAMESPACE,
    Parsed,
    argument,
    cluster_flag,
    flag,
    same_label_keys_flag,
    system_namespace_flag,
)
from kruise_probe.cli.reading import DEADLINE_SECONDS, Reader
from kruise_probe.cli.terminal import Terminal, show
from kruise_probe.client.config import ClusterConfig, ConfigOverrides, load_config
from kruise_probe.client.rest import RestClient
from kruise_probe.runtime.process import configure_logs

R = TypeVar("R")

COMPLETION_SECONDS: Final = 2.0
MAX_COMPLETIONS: Final = 500


def config_of(params: Mapping[str, Any]) -> ClusterConfig:
    """The configuration for the parsed options of `QueryFlags`, some of which have the names of `ConfigOverrides`.

    Raises:
        click.UsageError: --as-group without --as.
        ConfigError: the kubeconfig is missing or malformed.
    """
    given = {name: params[name] for name in ConfigOverrides._fields if params.get(name)}
    overrides = ConfigOverrides(**given)
    if overrides.as_groups and not overrides.as_user:
        raise click.UsageError("--as-group needs --as")
    return load_config(
        params.get("kubeconfig"),
        overrides=overrides,
        kubeconfig_first=True,
    )


def client_of(config: ClusterConfig) -> RestClient:
    return RestClient(
        config=config,
        field_manager="kruise-probe",
        user_agent=f"kruise-probe/{__version__}",
    )


class _List(msgspec.Struct, frozen=True):
    items: list[ApiObject] = []


def _completer(
    list_path: Callable[[str], str],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Complete names of the objects at `list_path(namespace)`; none after an error, which a shell cannot show."""

    def complete(
        ctx: click.Context,
        _: click.Parameter,
        incomplete: str,
    ) -> list[str]:
        try:
            config = config_of(ctx.params)
            path = list_path(ctx.params.get("namespace") or config.namespace)
            names = asyncio.run(_names(config, path))
        except (FatalError, KubeError, TimeoutError, click.UsageError, *DECODE_ERRORS):
            return []
        return [name for name in names if name.startswith(incomplete)]

    return complete


async def _names(config: ClusterConfig, path: str) -> list[str]:
    async with asyncio.timeout(COMPLETION_SECONDS), client_of(config) as client:
        raw = await client.request_raw("GET", f"{path}?limit={MAX_COMPLETIONS}")
    found = msgspec.json.decode(raw, type=_List).items
    return sorted(item.key.name for item in found)


complete_markers: Final = _completer(MARKERS.path)
complete_pods: Final = _completer(PODS.path)
complete_namespaces: Final = _completer(lambda _: "/api/v1/namespaces")


def _impersonated(text: str) -> str:
    """The name of a user or group, which is sent in a header."""
    if not text.isascii() or not text.isprintable():
        raise ValueError(f"{text!r} is not a name of printable ASCII characters")
    return text


def output_flag(*forms: str) -> Any:
    """The flag of the output's form; the first one is the default."""
    return flag(
        "Output format.",
        click.Choice(forms),
        forms[0],
        names=("-o", "--output"),
    )


_connection = partial(cluster_flag, env=False)
IMPERSONATED: Final = Parsed("name", _impersonated)


@dataclass(frozen=True, kw_only=True)
class QueryFlags:
    """Flags of `status`, `explain` and `try`, with kubectl's names and meanings."""

    namespace: str | None = flag(
        "Namespace to read.",
        NAMESPACE,
        names=("-n", "--namespace"),
        shell_complete=complete_namespaces,
        show_default="that of the context",
    )
    output: str = output_flag("table", "json", "yaml")
    allowed_label_keys: frozenset[str] = same_label_keys_flag()
    kubeconfig: str | None = cluster_flag(
        "Kubeconfig file. Without it: KUBECONFIG, then ~/.kube/config, then the pod's own service account.",
        click.Path(dir_okay=False),
    )
    context: str = _connection(
        "Context of the kubeconfig.",
        default="",
        show_default="current",
    )
    cluster: str = _connection(
        "Cluster of the kubeconfig.", default="", show_default="of the context"
    )
    user: str = _connection(
        "User of the kubeconfig.",
        default="",
        show_default="of the context",
    )
    as_user: str = _connection(
        "User to impersonate.",
        IMPERSONATED,
        "",
        names=("--as",),
    )
    as_groups: tuple[str, ...] = _connection(
        "Group to impersonate; repeatable.", IMPERSONATED, names=("--as-group",), multiple=True
    )
    system_namespace: str = system_namespace_flag()

    def run(
        self, work: Callable[[Reader], Coroutine[Any, Any, R]], *, namespace: str | None = None
    ) -> R:
        """Run `work` with a reader of `namespace`: by default that of the flag or of the context; empty for all.

        Warnings of the informers are not logged, to keep them out of the output. `Following.notes` returns them instead.

        Raises:
            FatalError: the API server failed, refused a request, or exceeded the deadline; with a remedy.
        """
        config = config_of(vars(self))
        if namespace is None:
            namespace = self.namespace or config.namespace

        async def connected() -> R:
            async with client_of(config) as client:
                reader = Reader(
                    client,
                    namespace=namespace,
                    system_namespace=self.system_namespace,
                    allowed_labels=self.allowed_label_keys,
                )
                return await work(reader)

        configure_logs(format="text", level="error")
        try:
            # As on Linux: the default loop of Windows cannot wait for the sockets of probes.
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                return runner.run(connected())
        except (KubeError, TimeoutError, BaseExceptionGroup) as error:
            first = first_of(error)
            if isinstance(first, (KubeError, TimeoutError, FatalError)):
                raise FatalError(_with_remedy(first, config.source or config.server)) from None
            raise


def _with_remedy(error: BaseException, source: str) -> str:
    """The error with what the user can do about it."""
    match error:
        case TimeoutError():
            return (
                f"the API server of {source} did not send all objects within {DEADLINE_SECONDS:g} s; "
                "try again, or read one namespace with -n"
            )
        case ConnectionFailed():
            return (
                f"{error}; check that the API server of {source} runs, and that it is the right one"
            )
        case Unauthorized():
            return f"{error}; log in again: the API server refused the credentials of {source}"
        case Forbidden():
            text = f"{error.message}; ask for this permission"
            if "cluster scope" in error.message:
                text += ", or read one namespace with -n"
            return text
        case ApiError() if error.code == 404 and "podprobemarkers" in error.request:
            return (
                "the CRDs are not installed in this cluster; install them: "
                "kruise-probe manifests --crds-only | kubectl apply --server-side -f -"
            )
        case _:
            return str(error)


@dataclass(frozen=True, kw_only=True)
class SelectingFlags(QueryFlags):
    """Flags of the commands that take several objects."""

    selector: Selector | None = flag(
        "Only objects with these labels, such as app=web,tier!=test.",
        Parsed("selector", parse_selector),
        names=("-l", "--selector"),
    )


def _name_argument(
    metavar: str,
    hint: str,
    *,
    kinds: Collection[str],
    **attributes: Any,
) -> Any:
    """An argument of names, also as `KIND/NAME`, as kubectl accepts them; `hint` says what to do about another kind.

    `kinds` as `kubectl get` accepts them, also with `.apps.kruise.io`.
    """

    def name(text: str) -> str:
        kind, slash, name = text.rpartition("/")
        if slash and kind.lower().removesuffix(f".{GROUP}") not in kinds:
            raise click.UsageError(f"{text!r}: {hint}")
        return name

    return argument(
        metavar,
        type=Parsed("name", name),
        **attributes,
    )


pod_argument: Final = partial(
    _name_argument, kinds=("pod", "pods", "po"), shell_complete=complete_pods
)
marker_argument: Final = partial(
    _name_argument,
    kinds=("podprobemarker", "podprobemarkers", "ppm"),
    shell_complete=complete_markers,
)


def print_view(
    view: msgspec.Struct,
    form: str,
    lines: Callable[[Terminal], Iterable[str]],
) -> None:
    """Print the view as `json` or `yaml`; in any other form, as lines that a terminal can scroll."""
    plain = msgspec.to_builtins(view)
    if form == "json":
        show(
            json.dumps(
                plain,
                indent=2,
                ensure_ascii=False,
            )
            + "\n"
        )
    elif form == "yaml":
        show(
            yaml.safe_dump(
                plain,
                sort_keys=False,
                allow_unicode=True,
                width=120,
            )
        )
    else:
        terminal = Terminal.of_stdout()._replace(height=0)
        show("".join(f"{line}\n" for line in lines(terminal)))


def not_found(
    kind: str,
    namespace: str,
    name: str,
    names: Iterable[str],
) -> str:
    """The error message if `name` does not exist."""
    hint = did_you_mean(name, sorted(names)) or " Choose another namespace with -n."
    return f"{kind} {namespace}/{name} does not exist.{hint}"
