"""`kruise-probe`: the group of commands, `--mode`, and how errors leave the process.

Every refusal is one line on stderr, `kruise-probe <command>: <what, where, what to do>`, and an exit code: 2 when
the command line was wrong, 1 when anything else was. A traceback is a defect. Nothing is said where nobody reads
the output any more (`| head`).
"""

import difflib
import importlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from kruise_probe import version
from kruise_probe.api.errors import FatalError
from kruise_probe.cli.failures import output_failure

MODE_VARIABLE: Final = "KRUISE_PROBE_MODE"
MODES: Final = ("manager", "daemon")
EXIT_FAILURE: Final = 1
EXIT_USAGE: Final = 2


_COMMANDS: Final = {
    "manager": "kruise_probe.cli.manager:manager",
    "daemon": "kruise_probe.cli.daemon:daemon",
    "status": "kruise_probe.cli.status:status",
    "explain": "kruise_probe.cli.explain:explain",
    "playground": "kruise_probe.playground.command:playground",
    "manifests": "kruise_probe.cli.manifests:manifests",
    "completion": "kruise_probe.cli.completion:completion",
}


class LazyGroup(click.Group):
    """Imports a command's module when that command is asked for: the daemon never loads the manager."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = _COMMANDS.get(cmd_name)
        if place is None:
            return None
        _import_structlog_without_rich()
        module_name, _, attribute = place.partition(":")
        module = __import__(module_name, fromlist=[attribute])
        command: click.Command = getattr(module, attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _COMMANDS and not ctx.resilient_parsing and not name.startswith("-"):
            close = difflib.get_close_matches(name, _COMMANDS, n=1)
            meant = f" (but {close[0]})" if close else f"; there are {', '.join(_COMMANDS)}"
            ctx.fail(f"No such command {name!r}{meant}.")
        return super().resolve_command(ctx, args)


def _import_structlog_without_rich() -> None:
    """Where rich is installed structlog imports it, for tracebacks that nobody here has drawn: 3 MB and 50 ms."""
    if "structlog" in sys.modules or "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # "there is none", to an import
    try:
        importlib.import_module("structlog")
    finally:
        del sys.modules["rich"]


_HELP: Final = """Custom pod probes for Kubernetes.

\b
Try it without a cluster:   kruise-probe playground
Install it in a cluster:    kruise-probe manifests | kubectl apply --server-side -f -
Show the results:           kruise-probe status -A
Explain a missing result:   kruise-probe explain POD

Exit codes: 0, 1 for a failure, 2 for a wrong command line.
"""


HELP_COLUMNS: Final = 120
"""Of a terminal that has as many; click alone stops at 80, where flags with their variables are hard to read."""


@click.group(
    cls=LazyGroup,
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_COLUMNS},
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    help=f"The same as the command of that name; flags follow. [env: {MODE_VARIABLE}]",
)
@click.version_option(version.build(), prog_name="kruise-probe", message="%(prog)s %(version)s")
def cli(mode: str | None) -> None:
    """The group; its help is `_HELP`."""
    del mode  # read by with_mode, before click sees the command line


def with_mode(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Turns `--mode manager …` (or the environment's mode, where no command is given) into `manager …`.

    Raises:
        click.UsageError: no such mode, or `--mode` beside another command.
    """
    rest = list(arguments)
    mode: str | None = None
    for index, argument in enumerate(rest):
        if argument == "--mode" and index + 1 < len(rest):
            mode = rest[index + 1]
            del rest[index : index + 2]
            break
        if argument.startswith("--mode="):
            mode = argument.removeprefix("--mode=")
            del rest[index]
            break
    given = rest[0] if rest and rest[0] in _COMMANDS else None
    if mode is None:
        mode = environment.get(MODE_VARIABLE) or None
        if mode is None or given or (rest and rest[0] in ("-h", "--help", "--version")):
            return rest
    if mode not in MODES:
        raise click.UsageError(f"--mode {mode!r}: there are {' and '.join(MODES)}")
    if given and given != mode:
        raise click.UsageError(f"--mode {mode} and the command {given!r} exclude each other")
    return rest if given else [mode, *rest]


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits with its code."""
    _open_closed_streams()
    os.environ.setdefault(
        "GRPC_VERBOSITY", "NONE"
    )  # or grpcio writes to stderr when a runtime restarts
    given = sys.argv[1:] if arguments is None else arguments
    if _serves(given, os.environ):
        # The first process of a container gets no signal that it has no handler for, and imports take half a second.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    code = run(given, os.environ)
    sys.exit(code if _all_written() else code or EXIT_FAILURE)


def _open_closed_streams() -> None:
    """Gives a process that was started without a stream (`>&-`) the null device for it, as Go does.

    Else nobody may ask what standard output is, and the first socket gets its number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - it stays open to the end


def _all_written() -> bool:
    """Leaves nothing for the interpreter to write at its end: what fails there is exit code 120 and a complaint."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


def _serves(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether this is one of the two modes, which SIGTERM ends in order."""
    try:
        return with_mode(arguments, environment)[0:1] in ([mode] for mode in MODES)
    except click.UsageError:
        return False


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs the command line; returns the exit code."""
    try:
        outcome: Any = cli.main(
            args=with_mode(arguments, environment), prog_name="kruise-probe", standalone_mode=False
        )
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return EXIT_USAGE
    except click.UsageError as error:
        place = error.ctx.command_path if error.ctx else "kruise-probe"
        told = _one_line(error.format_message()).removesuffix(".")
        click.echo(f"{place}: {told}. See '{place} --help'", err=True)
        return EXIT_USAGE
    except click.Abort:
        return 130
    except (FatalError, click.ClickException) as error:
        click.echo(f"kruise-probe: {_one_line(str(error))}", err=True)
        return EXIT_FAILURE
    except (OSError, BaseExceptionGroup) as error:
        failure = output_failure(error)
        if failure is None:
            raise
        if not isinstance(failure, BrokenPipeError):
            click.echo(f"kruise-probe: cannot write the output: {failure.strerror}", err=True)
        return EXIT_FAILURE
    return outcome if isinstance(outcome, int) else 0


def _one_line(text: str) -> str:
    return " ".join(text.split())
