"""Errors of the command line: one line each, exit code 2 for usage, 1 for failures."""

import os
import re
import shlex
import signal
from pathlib import Path

import click
import pytest
from support.cases import cases
from support.shell import kruise_probe, python

from kruise_probe import __version__
from kruise_probe.cli.main import MODE_VARIABLE, run, with_mode

NO_SOCKET = "write its absolute path, such as /run/containerd/containerd.sock"
USAGE_ERRORS = {
    "nothing": "No such command 'nothing'. Choose from playground, ",
    "stauts": "Did you mean 'status'? See 'kruise-probe --help'",
    "manager --nothing": "No such option '--nothing'. See 'kruise-probe manager --help'",
    "--mode nothing": "choose manager or daemon",
    "--mode=manager daemon": "exclude each other",
    "daemon": "--node-name is missing; set it, or the variable NODE_NAME",
    "daemon --node-name=A_b": "is not a valid Kubernetes name",
    "daemon --node-name=a --cri-endpoint=tcp://1": "unix socket",
    "daemon --node-name=a --cri-endpoint=unix:///a,unix:///b": "'unix:///a,unix:///b' names several sockets; repeat --cri-endpoint for each socket",
    "daemon --node-name=a --result-refresh-interval=0": "write 1s or longer",
    "manager --namespace=a.b": "at most 63",
    "manager --system-namespace=": "is not a valid Kubernetes name",
    "manager '--leader-election-id=A b'": "is not a valid Kubernetes name",
    "manager --controller-cache-sync-timeout=0": "must be greater than 0",
    "status -n A_b": "is not a valid Kubernetes name",
    "status -A -n a": "-A excludes -n",
    "status -n": "Option '-n' requires an argument. See 'kruise-probe status --help'",
    "status --watch=maybe": "write true or false",
    "explain": "name pods, or select them with -l",
    "explain a -l b": "or select them with -l",
    "explain deploy/a": "'deploy/a': explain takes pods; for a marker run: kruise-probe status MARKER",
    "status pods/a": "'pods/a': status takes markers; for a pod run: kruise-probe explain POD",
    "status --as-group a": "--as-group needs --as",
    "status --as 'a\nb'": "printable ASCII",
    "status -l a=b=c": "'a=b=c' is not a label selector",
    "manifests --namespace=A_b": "is not a valid Kubernetes name",
    "manifests --image=": "write a name and a tag",
    "manifests --cert-manager": "--webhook",
    "manifests --json-schema --crds-only": "exclude each other",
    "completion tcsh": "'bash'",
    "manifests --cri-socket=run/x": "absolute path",
    "playground --nodes=0": "whole number of 1 to 50",
    "playground --check --no-sample": "add -f FILE",
    "playground --check-timeout=soon": "write it as 15s",
    "manager --leader-election-lease-duration=5s": "must be greater than --leader-election-renew-deadline (10s): write 11s or more",
    "manager --leader-election-lease-duration=10.5s": "(10.5s) in whole seconds must be greater",
    "manager --leader-election-retry-period=0": "must be greater than 0, such as 2s",
    "manager --leader-election-retry-period=9s": "must be greater than 1.2 times --leader-election-retry-period",
    "manifests --cri-socket=/run/containerd/": NO_SOCKET,
    "manifests --cri-socket=/run/../x.sock": NO_SOCKET,
    "manifests --cri-socket=/run/.": NO_SOCKET,
    "manifests --cri-socket=//x.sock": NO_SOCKET,
    "manifests --cri-socket=/x.sock": NO_SOCKET,
    "manifests --cri-socket=/": NO_SOCKET,
}


@pytest.mark.parametrize("line", USAGE_ERRORS)
def test_usage_error_is_one_line_and_exit_code_2(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(shlex.split(line), {})

    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert USAGE_ERRORS[line] in err
    assert "--help" in err


@cases("content text", missing=(None, "does not exist"), no_yaml=("a: [", "is not YAML"))
def test_wrong_kubeconfig_is_one_line_and_exit_code_1(
    content: str | None, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)

    done = kruise_probe(
        "manager",
        "--metrics-addr=0",
        "--health-probe-addr=0",
        f"--kubeconfig={path}",
    )

    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert str(path) in line
    assert text in line


@cases(
    "line mode expected",
    two_words=("--mode daemon --addr=:1", "", "daemon --addr=:1"),
    one_word=("--mode=manager", "", "manager"),
    after_flags=("--addr=:1 --mode=daemon", "", "daemon --addr=:1"),
    environment=("", "daemon", "daemon"),
    a_command_wins=("playground", "daemon", "playground"),
    help_is_help=("--help", "daemon", "--help"),
    mode_and_command=("--mode=daemon daemon", "", "daemon"),
    no_mode=("manager", "", "manager"),
)
def test_mode_is_replaced_by_its_command(line: str, mode: str, expected: str) -> None:
    environment = {MODE_VARIABLE: mode} if mode else {}
    assert with_mode(line.split(), environment) == expected.split()


def test_unknown_mode_of_the_environment_is_refused() -> None:
    with pytest.raises(click.UsageError, match="choose manager or daemon"):
        with_mode([], {MODE_VARIABLE: "both"})


@pytest.mark.parametrize(
    "command",
    [
        "",
        "playground",
        "lint",
        "try",
        "manifests",
        "completion",
        "status",
        "explain",
        "manager",
        "daemon",
    ],
)
def test_help_has_80_columns_and_plain_types(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command.split(), "--help"], {}) == 0
    listed = capsys.readouterr().out

    assert max(map(len, listed.splitlines())) <= 80
    assert ("KRUISE_PROBE_" in listed) == (command != "completion")
    assert "RANGE" not in listed
    assert listed.count("default:") == len(re.findall(r"\[[^][]*default:[^][]*\]", listed))


def test_help_lists_commands_and_flags_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ([], ["manifests"], ["manager"]):
        run([*command, "--help"], {})

    groups = re.findall(r"^([A-Z].*):$", capsys.readouterr().out, re.MULTILINE)
    assert groups[:11] == [
        *("Options", "Try it out", "Install", "Look", "Run"),
        *("Options", "Manager and daemon", "Webhook", "Security"),
        *("Options", "Cluster"),
    ]


@cases("commit shown", of_an_image=("0123456789abcdef", "commit 0123456789ab, "), unknown=("", ""))
def test_version_names_its_commit(commit: str, shown: str) -> None:
    done = kruise_probe("--version", env={**os.environ, "KRUISE_PROBE_COMMIT": commit})
    assert done.stdout.startswith(f"kruise-probe {__version__} ({shown}CPython 3.")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", ["manifests --crds-only", "--version", "manager --help"])
def test_write_error_of_the_output_is_one_line(arguments: str, unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        done = kruise_probe(*arguments.split(), env=environment, stdout=full)

    assert done.returncode == 1
    assert done.stderr == "kruise-probe: cannot write the output: No space left on device\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", ["manifests --crds-only", "--version"])
def test_closed_pipe_prints_no_error(arguments: str, unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        done = kruise_probe(*arguments.split(), env=environment, stdout=pipe)

    assert done.returncode == 1
    assert done.stderr == ""


def test_broken_pipe_of_a_socket_shows_a_traceback() -> None:
    script = (
        "from kruise_probe.cli import main as it\n"
        "def work(**_): raise ExceptionGroup('of tasks', [BrokenPipeError('of a socket')])\n"
        "it.cli.main = work\n"
        "it.main(['manifests'])"
    )

    done = python("-c", script)
    assert done.returncode == 1
    assert "BrokenPipeError: of a socket" in done.stderr


@cases("command code", mode=("daemon", 0), other_command=("manifests", -signal.SIGTERM))
def test_sigterm_during_the_imports_of_a_mode_exits_with_0(command: str, code: int) -> None:
    """The signal arrives where the module of the command is imported."""
    script = (
        "import os, signal; from kruise_probe.cli import main as it; "
        "it.cli.main = lambda **_: os.kill(os.getpid(), signal.SIGTERM) or 1; "
        f"it.main([{command!r}])"
    )

    assert python("-c", script).returncode == code
