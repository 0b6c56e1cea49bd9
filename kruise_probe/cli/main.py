"""`kruise-probe`: the group of commands, `--mode`, completion, and how errors leave the process.

Every error is one line on stderr: `kruise-probe <command>: <what, where, what to do>`. The exit code is 2 for a wrong
command line and 1 for any other failure. A traceback is a defect. If the reader closes the pipe (`| head`), no error
is printed.
"""

import importlib
import io
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

import click

from kruise_probe import __version__
from kruise_probe.cli.terminal import HelpContext

COMMIT_VARIABLE: Final = "KRUISE_PROBE_COMMIT"
"""Set in images: the commit that they were built from."""

COMPLETE_VARIABLE: Final = "_KRUISE_PROBE_COMPLETE"
"""Set by the completion script, with the name of the shell."""

MODE_VARIABLE: Final = "KRUISE_PROBE_MODE"
MODES: Final = ("manager", "daemon")
EXIT_FAILURE: Final = 1
EXIT_USAGE: Final = 2


SECTIONS: Final = {
    "Try it out": {
        "playground": "Run everything on this machine, without a cluster.",
        "lint": "Check files of PodProbeMarkers without a cluster.",
        "try": "Run the probes of a marker once against a pod.",
    },
    "Install": {
        "manifests": "Print the YAML to install.",
        "completion": "Print the completion script for bash, zsh or fish.",
    },
    "Look": {
        "status": "Show probes, results and problems.",
        "explain": "Show why a pod is or is not probed.",
    },
    "Run": {
        "manager": "Write probes to nodes, and results to pods.",
        "daemon": "Probe the containers of one node.",
    },
}
"""The commands in the order of --help. The module of each but the completion is `kruise_probe.cli.NAME`."""

ENTRY_POINTS: Final = "kruise_probe.commands"
"""The entry point group in which the other distribution registers its command."""

PLAYGROUND: Final = "playground"

_SHORT_HELP: Final = dict(chain.from_iterable(section.items() for section in SECTIONS.values()))


class LazyGroup(click.Group):
    """Imports the module of a command when the command runs, so that the daemon never loads the manager."""

    context_class: type[click.Context] = HelpContext

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_SHORT_HELP)

    def get_command(
        self,
        ctx: click.Context,
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in _SHORT_HELP:
            return None
        _import_structlog_without_rich()
        if cmd_name == PLAYGROUND:
            command = _playground(ctx)
        elif cmd_name == completion.name:
            command = completion
        else:
            attribute = "try_pod" if cmd_name == "try" else cmd_name
            command = getattr(importlib.import_module(f"kruise_probe.cli.{attribute}"), attribute)
        if command is not None:
            command.short_help = _SHORT_HELP[cmd_name]
        return command

    def format_commands(
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
    ) -> None:
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(list(section.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name.startswith("-") or name in _SHORT_HELP or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        from kruise_probe.api.problems import did_you_mean  # lazy: only after a mistake

        hint = did_you_mean(name, _SHORT_HELP)
        if not hint:
            names = ", ".join(_SHORT_HELP)
            hint = f" Choose from {names}."
        ctx.fail(f"No such command {name!r}.{hint}")


def _playground(ctx: click.Context) -> click.Command | None:
    """The command of the other distribution. Without it, None while the shell completes words.

    Raises:
        click.ClickException: says what to install.
    """
    from importlib.metadata import entry_points  # lazy: 10 ms

    for entry_point in entry_points(group=ENTRY_POINTS, name=PLAYGROUND):
        command: click.Command = entry_point.load()
        return command
    if ctx.resilient_parsing:
        return None
    raise click.ClickException(
        f"{PLAYGROUND} is a separate distribution and not installed; run: pip install kruise-probe-{PLAYGROUND}"
    )


def _import_structlog_without_rich() -> None:
    """Keep structlog from importing rich, which it uses for tracebacks only: saves 3 MB and 50 ms."""
    if "structlog" in sys.modules or "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # makes `import rich` fail
    try:
        importlib.import_module("structlog")
    finally:
        del sys.modules["rich"]


def _version() -> str:
    """`0.1.0 (commit 4513dfa, CPython 3.13.1, linux/x86_64)`; without a commit where none is known."""
    parts = [
        f"{platform.python_implementation()} {platform.python_version()}",
        f"{platform.system().lower()}/{platform.machine()}",
    ]
    commit = os.environ.get(COMMIT_VARIABLE, "")
    if commit:
        parts.insert(0, f"commit {commit[:12]}")
    return f"{__version__} ({', '.join(parts)})"


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    help=f"Run this command. For images where only variables can be set: {MODE_VARIABLE}.",
)
@click.version_option(_version(), message="kruise-probe %(version)s")
def cli(mode: str | None) -> None:
    """Custom pod probes for Kubernetes.

    \b
    Try it:   kruise-probe playground
    Install:  kruise-probe manifests | kubectl apply --server-side -f -
    Results:  kruise-probe status -A
    Reasons:  kruise-probe explain POD

    Exit codes: 0, 1 for a failure, 2 for a wrong command line.
    """
    del mode  # read by with_mode, before click sees the command line


@click.command()
@click.argument(
    "shell",
    type=click.Choice(["bash", "zsh", "fish"]),
)
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Prints the completion script of a shell.

    \b
    ~/.bashrc                   eval "$(kruise-probe completion bash)"
    ~/.zshrc, after compinit    eval "$(kruise-probe completion zsh)"
    ~/.config/fish/config.fish  kruise-probe completion fish | source

    kubectl (1.26 and newer) completes `kubectl kruise-probe` by itself: it calls kubectl_complete-kruise_probe, which is
    installed next to kubectl-kruise_probe.
    """
    from click.shell_completion import get_completion_class  # lazy: only for shells

    kind = get_completion_class(shell)
    assert kind is not None, "click knows all three"
    root = ctx.find_root().command
    shell_completion = kind(root, {}, "kruise-probe", COMPLETE_VARIABLE)
    script = shell_completion.source()
    # click's script for fish cuts descriptions at the first comma.
    click.echo(script.replace('string split "," $completion', 'string split -m 1 "," $completion'))


completion.context_class = HelpContext


def with_mode(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Turn `--mode manager …` into `manager …`; without a command, the environment may set the mode.

    Raises:
        click.UsageError: unknown mode, or `--mode` with a different command.
    """
    mode, rest = _given_mode(arguments)
    first = rest[0] if rest else ""
    if mode is None:
        mode = environment.get(MODE_VARIABLE)
        if not mode or first in _SHORT_HELP or first in ("-h", "--help", "--version"):
            return rest
    if mode not in MODES:
        raise click.UsageError(f"--mode {mode!r} does not exist; choose {' or '.join(MODES)}")
    if first not in _SHORT_HELP:
        return [mode, *rest]
    if first != mode:
        raise click.UsageError(f"--mode {mode} and the command {first!r} exclude each other")
    return rest


def _given_mode(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """The mode of the command line, and the other arguments."""
    rest = list(arguments)
    for index, argument in enumerate(rest):
        name, equals, mode = argument.partition("=")
        if name == "--mode" and equals:
            del rest[index]
            return mode, rest
        if name == "--mode" and index + 1 < len(rest):
            mode = rest[index + 1]
            del rest[index : index + 2]
            return mode, rest
    return None, rest


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its exit code."""
    # Otherwise grpcio writes to stderr when a runtime restarts.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    for stream in (sys.stdout, sys.stderr):
        # As kubectl. In a pipe, Windows has an encoding without many letters that messages may have.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    if arguments is None:
        arguments = sys.argv[1:]
    code = run(arguments, os.environ)
    if not _all_written():
        code = code or EXIT_FAILURE
    sys.exit(code)


def complete_for_kubectl() -> None:
    """The program `kubectl_complete-kruise_probe`, which kubectl calls to complete `kubectl kruise-probe`."""
    click.echo(
        completions_for_kubectl(cli, sys.argv[1:]),
        nl=False,
    )


_FILES: Final = 0
_NO_FILES: Final = 4
"""ShellCompDirectiveDefault and ShellCompDirectiveNoFileComp of cobra."""


def completions_for_kubectl(root: click.Command, arguments: Sequence[str]) -> str:
    """The completions of the last of `arguments`, as `kubectl_complete-kruise_probe` must print them.

    Source: kubectl pkg/cmd/plugin/plugin_completion.go; cobra's __complete command.
    """
    from click.shell_completion import ShellComplete  # lazy: only for shells

    *before, incomplete = arguments or [""]
    completer = ShellComplete(
        root,
        {},
        "kruise-probe",
        COMPLETE_VARIABLE,
    )
    text = ""
    directive = _NO_FILES
    for item in completer.get_completions(before, incomplete):
        if item.type != "plain":
            directive = _FILES
        elif item.help:
            text += f"{item.value}\t{item.help}\n"
        else:
            text += f"{item.value}\n"
    return f"{text}:{directive}\n"


def _all_written() -> bool:
    """Flush standard output; False if that fails. At exit, the interpreter would print an error and return 120."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command line; return the exit code."""
    try:
        words = with_mode(arguments, environment)
        if words and words[0] in MODES:
            import signal  # lazy: only for these two commands

            # PID 1 ignores signals without a handler, and imports take half a second.
            signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        result: Any = cli.main(
            args=words,
            prog_name="kruise-probe",
            standalone_mode=False,
        )
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return EXIT_USAGE
    except click.UsageError as error:
        place = error.ctx.command_path if error.ctx else "kruise-probe"
        message = _one_line(error.format_message())
        if not message.endswith(("?", ".")):
            message += "."
        click.echo(
            f"{place}: {message} See '{place} --help'",
            err=True,
        )
        return EXIT_USAGE
    except click.Abort:
        return 130
    except (Exception, BaseExceptionGroup) as error:
        text = _failure(error)
        if text is None:
            raise
        if text:
            click.echo(
                f"kruise-probe: {_one_line(text)}",
                err=True,
            )
        return EXIT_FAILURE
    return result if isinstance(result, int) else 0


def _failure(error: BaseException) -> str | None:
    """What to print about a failure: nothing if the reader closed the pipe; None for a defect, which has a traceback.

    All output goes through `click.echo`. An OSError from elsewhere, such as of a socket, is a defect.
    """
    # lazy: only after a failure
    import traceback

    from kruise_probe.api.errors import FatalError, first_of

    if isinstance(error, (FatalError, click.ClickException)):
        return str(error)
    first = first_of(error)
    called = [frame.f_code for frame, _ in traceback.walk_tb(first.__traceback__)]
    if not isinstance(first, OSError) or called[-1:] != [click.echo.__code__]:
        return None
    if isinstance(first, BrokenPipeError):
        return ""
    return f"cannot write the output: {first.strerror}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
