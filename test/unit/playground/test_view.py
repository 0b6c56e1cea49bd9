"""The view at the widths that terminals have."""

import io
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from rich.console import Console

from kruise_probe.api.names import ProbeName
from kruise_probe_playground.rows import Mark, PodRow, ProbeRow, ProblemSummary
from kruise_probe_playground.ticker import Line
from kruise_probe_playground.view import LiveView, plain_line

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
SINCE = "2026-01-01T11:59:53Z"
COST = Mark("annotation", "controller.kubernetes.io/pod-deletion-cost", "-10")
STATE = Mark("label", "game.example.com/state", "idle")


TROUBLE = ProblemSummary(
    "game#idle on game-0: the pod has no container mian", "correct containerName"
)


def probe(
    name: str,
    state: str = "Succeeded",
    message: str = "fine",
    *,
    gate: bool = False,
    marks: tuple[Mark, ...] = (),
) -> ProbeRow:
    check = "1s exec cat state"
    return ProbeRow(ProbeName("game", name), state, SINCE, message, gate, check, marks)


def pod(name: str, *, ready: str = "True", restarts: int = 0) -> PodRow:
    probes = (probe("idle", marks=(COST, STATE)), probe("lobby", "Failed", "x" * 200, gate=True))
    return PodRow("default", name, "Running", ready, "127.10.1.1", restarts, probes)


LINES = [(NOW, Line("game-0", f"line {number}", "good")) for number in range(100)]


def drawn(
    width: int,
    height: int,
    *pods: PodRow,
    hints: tuple[str, ...] = ("hint",),
    problems: Sequence[ProblemSummary] = (),
) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), force_terminal=False)
    with console.capture() as captured:
        console.print(LiveView(pods, LINES, hints, NOW, problems), end="")
    return [line.rstrip() for line in captured.get().splitlines()]


@pytest.mark.parametrize("height", [24, 40])
@pytest.mark.parametrize("width", [80, 140])
def test_view_fills_the_terminal_exactly(width: int, height: int) -> None:
    lines = drawn(width, height, pod("game-0"), pod("game-1"))
    assert len(lines) == height
    assert max(map(len, lines)) <= width
    assert ("1s exec cat state" in lines[2]) is (width > 80), "a wide terminal shows the checks"


def test_probes_of_one_name_are_shown_with_their_markers() -> None:
    probes = (probe("idle"), probe("idle")._replace(probe=ProbeName("other", "idle")))
    lines = drawn(80, 24, pod("game-0")._replace(probes=probes))
    assert [each.split()[0] for each in lines[2:4]] == ["game#idle", "other#idle"]


def test_80_columns_show_states_marks_problems_newest_lines_and_hints() -> None:
    lines = drawn(80, 24, pod("game-0", ready="False", restarts=2), problems=[TROUBLE] * 5)
    assert lines[1].split() == ["game-0", "(restarted", "2x)", "not", "ready", "127.10.1.1"]
    assert lines[2].split() == ["idle", "Succeeded", "7s", "state=idle", "cost=-10", "fine"]
    assert lines[3].split()[:4] == ["lobby", "(gate)", "Failed", "7s"]
    assert lines[4] == "! game#idle on game-0: the pod has no container mian"
    assert lines[5] == "  -> correct containerName"
    assert "! 2 more: kruise-probe status" in lines
    assert lines[-3].endswith("line 99")
    assert lines[-1] == "hint"


def test_pods_that_do_not_fit_are_counted() -> None:
    lines = drawn(80, 24, *(pod(f"game-{number}") for number in range(20)))
    assert any(line.startswith("…") and "more" in line for line in lines)
    assert lines[-3].endswith("line 99")
    assert len(lines) == 24


def test_lines_for_files_are_plain() -> None:
    assert plain_line(LINES[0]) == f"{NOW.astimezone():%H:%M:%S} game-0 line 0"


def test_low_terminals_show_two_pods_with_their_probes_and_the_first_hint() -> None:
    lines = drawn(60, 15, *map(pod, ("game-0", "game-1", "game-2")), hints=("first", "second"))
    assert len(lines) == 15
    assert lines[-1] == "first"
    assert {"game-0", "game-1"} <= {line.split(" ")[0] for line in lines}
    assert sum("state=idle  cost=-10" in line for line in lines) == 2
