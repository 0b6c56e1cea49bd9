"""`kruise-probe playground` as a newcomer runs it. It leaves no process and no file."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from integration.processes import processes_with
from support.cases import cases
from support.patience import PATIENCE_SECONDS

import kruise_probe

COMMAND = (sys.executable, "-m", "kruise_probe", "playground")
SOURCE = Path(kruise_probe.__file__).parents[1]
"""Where the tested package is, for a command that is started in another folder."""


class Command:
    """A started playground whose temporary files are in a folder of the test's own."""

    def __init__(self, folder: Path, *arguments: str, cwd: Path | None = None) -> None:
        self.folder = folder / "tmp"
        self.folder.mkdir()
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "TMPDIR": str(self.folder),
                "XDG_RUNTIME_DIR": str(self.folder),
                "PYTHONPATH": str(SOURCE),
            },
            start_new_session=True,
            cwd=cwd,
        )

    def end(self, *, timeout: float = 3 * PATIENCE_SECONDS) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err

    def read_until(self, text: str) -> list[str]:
        assert self.process.stdout
        lines = []
        for line in self.process.stdout:
            lines.append(line.rstrip("\n"))
            if text in line:
                return lines
        raise AssertionError(f"{text!r} never came")

    def processes(self) -> list[int]:
        """All that name its folder in their environment or command line, but for itself."""
        return [pid for pid in processes_with(str(self.folder)) if pid != self.process.pid]

    def files(self) -> list[str]:
        names: list[str] = []
        for _, folders, files in os.walk(self.folder):
            names += folders + files
        return names

    def leftovers(self) -> list[object]:
        """What is there when every process has had its time to end."""
        for pid in self.processes():
            try:
                ended = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            select.select([ended], [], [], PATIENCE_SECONDS)
            os.close(ended)
        return [*self.processes(), *self.files()]


Start = Callable[..., Command]


@pytest.fixture
def short_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="p") as folder:
        yield Path(folder)


@pytest.fixture
def start(short_folder: Path) -> Iterator[Start]:
    started: list[Command] = []

    def begin(*arguments: str, cwd: Path | None = None) -> Command:
        started.append(Command(short_folder, *arguments, cwd=cwd))
        return started[-1]

    yield begin
    for command in started:
        command.process.kill()
        command.process.communicate()
        command.leftovers()  # The guardian removes them, and the folder may go only after it.


def test_check_observes_both_states_of_each_sample_probe(start: Start) -> None:
    code, out, err = start("--check", "--check-timeout=120s").end()

    result = json.loads(out)
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    assert result["ok"] is True
    assert (result["pods"], result["probes"]) == (3, 9)
    both = ["Succeeded", "Failed"]
    expected: dict[str, list[str]] = {}
    for pod in ("game-0", "game-1", "game-2"):
        expected |= {f"{pod}/idle": both, f"{pod}/lobby": both, f"{pod}/healthy": both}
    assert result["seen"] == expected


def test_check_names_the_broken_link_that_explain_knows(start: Start, short_folder: Path) -> None:
    file = short_folder / "own.yaml"
    file.write_text(OWN.replace("containerName: main", "containerName: mian"))
    code, _, err = start("--check", "--check-timeout=20s", "-f", str(short_folder)).end()
    assert code == 1
    assert "own#up on own: the pod has no container mian, only main. Did you mean 'main'?" in err
    assert "-> correct containerName in the marker" in err


def test_commands_on_the_screen_fit_60_columns_and_work_when_pasted(
    start: Start,
) -> None:
    playground = start()
    lines = playground.read_until("> players")
    commands = [line for line in lines if not line[:2].isdigit()]  # changes begin with a time
    pasted = "\n".join(line for line in commands if not line.endswith("# watch"))
    assert max(map(len, commands)) <= 60, commands
    assert "game-0" in output_of(pasted)  # of explain
    folder = playground.folder / "kp/node-0/game-0/server"
    assert (folder / "hold").exists()
    players = folder / "players"
    if players.read_text() != "5\n":  # of a step of the game that began before `hold` was there
        output_of(pasted)
    assert players.read_text() == "5\n"


def output_of(pasted: str) -> str:
    """What these commands print in an empty folder, in which they leave nothing. Each must succeed."""
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            ["bash", "-ec", pasted], cwd=home, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert not os.listdir(home)
    return done.stdout


def test_check_of_other_files_needs_one_result_of_each_probe_and_skips_other_kinds(
    start: Start, short_folder: Path
) -> None:
    file = short_folder / "own.yaml"
    file.write_text(
        f"apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: x}}\n---{OWN}"
    )
    code, out, err = start("--check", "--check-timeout=120s", "-f", str(file)).end()
    assert code == 0
    assert json.loads(out)["seen"] == {"own/down": ["Failed"], "own/up": ["Succeeded"]}
    place = f"{file}, document 1 (PodDisruptionBudget x)"
    assert err == f"{place}: skipped: the playground has no PodDisruptionBudget\n"


OWN = """
apiVersion: apps.kruise.io/v1alpha1
kind: PodProbeMarker
metadata: {name: own}
spec:
  selector: {matchLabels: {app: own}}
  probes:
  - name: up
    containerName: main
    probe: {exec: {command: ["true"]}, timeoutSeconds: 10}
    podConditionType: example.com/up
  - name: down
    containerName: main
    probe: {exec: {command: ["false"]}, timeoutSeconds: 10}
    markerPolicy: [{state: Failed, labels: {down: "yes"}}]
---
apiVersion: v1
kind: Pod
metadata: {name: own, labels: {app: own}}
spec: {containers: [{name: main, image: none, command: [sleep, "1000"]}]}
"""


@cases("moment", at_once="", when_it_is_ready="export KUBECONFIG", with_results="idle")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_or_file_is_left_after_any_end(start: Start, number: int, moment: str) -> None:
    playground = start()
    if moment:
        playground.read_until(moment)
        assert playground.processes()
        assert playground.files()
    playground.process.send_signal(number)
    code, out, err = playground.end()

    assert playground.leftovers() == []
    if moment or number != signal.SIGINT:  # Python prints a traceback while it starts.
        assert "Traceback" not in err
    if moment and number != signal.SIGKILL:
        assert code == 0
        changes = "[1-9]" if moment == "idle" else ""
        assert re.search(f"^stopped after {changes}", out, re.MULTILINE)


@cases("relative", absolute=False, relative=True)
def test_kubeconfig_out_is_written_and_removed_at_the_end(
    start: Start, short_folder: Path, relative: bool
) -> None:
    kubeconfig = short_folder / "kubeconfig"
    flag = f"--kubeconfig-out={kubeconfig.name if relative else kubeconfig}"
    playground = start(flag, "--no-sample", cwd=short_folder)
    playground.read_until("export KUBECONFIG")
    assert "127.0.0.1" in kubeconfig.read_text()
    playground.process.terminate()
    assert playground.end()[0] == 0
    assert not kubeconfig.exists()


def test_playground_ends_when_its_pipe_is_closed(start: Start) -> None:
    command = start()
    command.read_until("KUBECONFIG")
    assert command.process.stdout
    command.process.stdout.close()

    code = command.process.wait(60)

    assert command.process.stderr
    assert (code, command.process.stderr.read()) == (0, "")
    assert command.leftovers() == []
