"""Shell completion: the script that `kruise-probe completion` prints, and kubectl's protocol."""

from collections.abc import Sequence

import click
from click.shell_completion import ShellComplete, get_completion_class

_VARIABLE = "_KRUISE_PROBE_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Prints the completion script of a shell.

    \b
    ~/.bashrc                   eval "$(kruise-probe completion bash)"
    ~/.zshrc, after compinit    eval "$(kruise-probe completion zsh)"
    ~/.config/fish/config.fish  kruise-probe completion fish | source

    kubectl (1.26 and newer) completes `kubectl kruise-probe` by itself: it calls kubectl_complete-kruise_probe, which is
    installed beside kubectl-kruise_probe.
    """
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
