"""Shell completion: the script that `kruise-probe completion` prints, and the names of API objects.

An error while names are read results in no completions, because a shell cannot show errors there.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import click
import msgspec
from click.shell_completion import get_completion_class

from kruise_probe.api.errors import FatalError, KubeError
from kruise_probe.api.resources import DECODE_ERRORS, MARKERS, PODS
from kruise_probe.cli.reading import client_of
from kruise_probe.client.config import ClusterConfig, load_config

DEADLINE_SECONDS: Final = 2.0
MAX_NAMES: Final = 500

_HELP = """Prints the completion script of a shell.

\b
bash   eval "$(kruise-probe completion bash)"                 in ~/.bashrc
zsh    eval "$(kruise-probe completion zsh)"                  in ~/.zshrc, after compinit
fish   kruise-probe completion fish | source                  in ~/.config/fish/config.fish
"""

_VARIABLE = "_KRUISE_PROBE_COMPLETE"


@click.command(help=_HELP, short_help="Print the completion script for bash, zsh or fish.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    kind = get_completion_class(shell)
    assert kind is not None, "click knows all three"
    script = kind(ctx.find_root().command, {}, "kruise-probe", _VARIABLE).source()
    # click's script for fish cuts descriptions at the first comma.
    click.echo(script.replace('string split "," $completion', 'string split -m 1 "," $completion'))


Completer = Callable[[click.Context, click.Parameter, str], list[str]]


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _List(msgspec.Struct, frozen=True):
    items: list[_Object] | None = None


def _completer(list_path: Callable[[str], str]) -> Completer:
    """Complete the names of the list at `list_path` of the namespace."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        try:
            config = load_config(ctx.params.get("kubeconfig"))
            path = list_path(ctx.params.get("namespace") or config.namespace)
            names = asyncio.run(_names(config, path))
        except (FatalError, KubeError, TimeoutError, *DECODE_ERRORS):
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
