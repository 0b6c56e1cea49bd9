"""Shell completion: the script that `kruise-probe completion` prints, kubectl's protocol, and names of API objects.

An error while reading names gives no completions, because a shell cannot show errors there.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import click
import msgspec
from click.shell_completion import ShellComplete, get_completion_class

from kruise_probe.api.errors import FatalError, KubeError
from kruise_probe.api.meta import DECODE_ERRORS
from kruise_probe.api.resources import MARKERS, PODS
from kruise_probe.cli.query_client import client_of, config_of
from kruise_probe.client.config import ClusterConfig

DEADLINE_SECONDS: Final = 2.0
MAX_NAMES: Final = 500

_HELP = """Prints the completion script of a shell.

\b
~/.bashrc                   eval "$(kruise-probe completion bash)"
~/.zshrc, after compinit    eval "$(kruise-probe completion zsh)"
~/.config/fish/config.fish  kruise-probe completion fish | source

kubectl (1.26 and newer) completes `kubectl kruise-probe` by itself: it calls kubectl_complete-kruise_probe, which is
installed beside kubectl-kruise_probe.
"""

_VARIABLE = "_KRUISE_PROBE_COMPLETE"


@click.command(help=_HELP)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    kind = get_completion_class(shell)
    assert kind is not None, "click knows all three"
    script = kind(ctx.find_root().command, {}, "kruise-probe", _VARIABLE).source()
    # click's script for fish cuts descriptions at the first comma.
    click.echo(script.replace('string split "," $completion', 'string split -m 1 "," $completion'))


_FILES, _NO_FILES = 0, 4
"""ShellCompDirectiveDefault and ShellCompDirectiveNoFileComp of cobra."""


def completions_for_kubectl(root: click.Command, arguments: Sequence[str]) -> str:
    """The completions of the last of `arguments`, as `kubectl_complete-kruise_probe` must print them.

    Source: kubectl pkg/cmd/plugin/plugin_completion.go; cobra's __complete command.
    """
    *before, incomplete = arguments or [""]
    items = ShellComplete(root, {}, "kruise-probe", _VARIABLE).get_completions(before, incomplete)
    plain = [each for each in items if each.type == "plain"]
    lines = [f"{each.value}\t{each.help}" if each.help else each.value for each in plain]
    directive = _NO_FILES if len(plain) == len(items) else _FILES
    return "".join(f"{each}\n" for each in (*lines, f":{directive}"))


Completer = Callable[[click.Context, click.Parameter, str], list[str]]


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _List(msgspec.Struct, frozen=True):
    items: list[_Object] | None = None


def _completer(list_path: Callable[[str], str]) -> Completer:
    """Complete names of the objects at `list_path(namespace)`."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        try:
            config = config_of(ctx.params)
            path = list_path(ctx.params.get("namespace") or config.namespace)
            names = asyncio.run(_names(config, path))
        except (FatalError, KubeError, TimeoutError, click.UsageError, *DECODE_ERRORS):
            return []
        return [each for each in names if each.startswith(incomplete)]

    return complete


async def _names(config: ClusterConfig, path: str) -> list[str]:
    async with asyncio.timeout(DEADLINE_SECONDS), client_of(config) as client:
        raw = await client.get_raw(f"{path}?limit={MAX_NAMES}")
    return sorted(each.metadata.name for each in msgspec.json.decode(raw, type=_List).items or ())


complete_markers: Final = _completer(MARKERS.path)
complete_pods: Final = _completer(PODS.path)
complete_namespaces: Final = _completer(lambda _: "/api/v1/namespaces")
