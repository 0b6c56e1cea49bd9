"""`kruise-probe completion`: prints the shell's completion script."""

import click
from click.shell_completion import get_completion_class

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
