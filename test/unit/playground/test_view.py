"""The view at the widths that terminals have."""

import io
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from rich.console import Console

from kruise_probe.api.names import ProbeName
from kruise_probe.cli.screen import Scroll
from kruise_probe_playground.rows import Mark, PodRow, ProbeRow, ProblemSummary
from kruise_probe_playground.ticker import Line
from kruise_probe_playground.view import LiveView

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
SINCE = "2026-01-01T11:59:53Z"
COST = Mark("annotation", "controller.kubernetes.io/pod-deletion-cost", "-10")
STATE = Mark("label", "game.example.com/state", "idle")


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
    scroll: Scroll | None = None,
) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), force_terminal=False)
    view = LiveView(pods, LINES, hints, NOW, problems, scroll or Scroll())
    with console.capture() as captured:
        console.print(view, end="")
    lines = [line.rstrip() for line in captured.get().splitlines()]
    assert len(lines) == height
    assert max(map(len, lines)) <= width
    return lines


def test_80_columns_show_states_marks_newest_lines_and_hints() -> None:
    lines = drawn(80, 24, pod("game-0", ready="False", restarts=2))
    assert lines[1].split() == ["game-0", "(restarted", "2x)", "not", "ready", "127.10.1.1"]
    assert lines[2].split() == ["idle", "Succeeded", "7s", "state=idle", "cost=-10", "fine"]
    assert lines[3].split()[:4] == ["lobby", "(gate)", "Failed", "7s"]
    assert lines[-3].endswith("line 99")
    assert lines[-1] == "hint"


@pytest.mark.parametrize(("width", "height"), [(60, 15), (80, 24), (120, 40)])
def test_pods_stay_beside_many_problems_and_commands_and_all_of_it_scrolls(
    width: int, height: int
) -> None:
    problems = [
        ProblemSummary(f"game#p{number} on game-0: the pod has no container mian", "correct " * 20)
        for number in range(8)
    ]
    pods = [pod(f"game-{number}") for number in range(20)]
    hints = tuple(f"command {number}" for number in range(7))
    scroll = Scroll()

    first = drawn(width, height, *pods, hints=hints, problems=problems, scroll=scroll)
    heading = next(at for at, line in enumerate(first) if line.startswith("POD, PROBE"))
    assert first[heading + 1].startswith("game-0")
    assert first[heading + 3].startswith("  lobby")
    assert first[0].startswith("! game#p0 on game-0")
    remedy = first.index(next(line for line in first if line.startswith("  -> correct")))
    assert first[remedy + 1].startswith("  correct")
    assert any(line.startswith("… ") and line.endswith(" more lines") for line in first)
    assert any(line.endswith("line 99") for line in first)

    last = first
    while scroll.below:
        scroll.press("page down")
        last = drawn(width, height, *pods, hints=hints, problems=problems, scroll=scroll)
    assert any(line.startswith("game-19") for line in last)
