"""The view at the widths that terminals have."""

import io
import re
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


IDLE = ProbeRow(
    ProbeName("game", "idle"),
    state="Succeeded",
    since=SINCE,
    message="fine",
    check="1s exec cat state",
    marks=(COST, STATE),
)
LOBBY = ProbeRow(
    ProbeName("game", "lobby"),
    state="Failed",
    since=SINCE,
    message="x" * 200,
    gate=True,
    check="1s exec cat state",
)


def pod(name: str, *, ready: str = "True", restarts: int = 0) -> PodRow:
    return PodRow(
        "default",
        name,
        status="Running",
        ready=ready,
        ip="127.10.1.1",
        restarts=restarts,
        probes=(IDLE, LOBBY),
    )


LINES = [(NOW, Line("game-0", f"line {number}", "good")) for number in range(100)]


def drawn(
    width: int,
    height: int,
    *pods: PodRow,
    hints: tuple[str, ...] = ("hint",),
    problems: Sequence[ProblemSummary] = (),
    scroll: Scroll | None = None,
) -> list[str]:
    console = Console(
        width=width,
        height=height,
        file=io.StringIO(),
        force_terminal=False,
    )
    view = LiveView(
        pods,
        LINES,
        hints,
        NOW,
        problems,
        scroll or Scroll(),
    )
    with console.capture() as captured:
        console.print(view, end="")
    lines = [line.rstrip() for line in captured.get().splitlines()]
    assert len(lines) == height
    assert max(map(len, lines)) <= width
    return lines


def words(line: str) -> str:
    """The line, without its columns."""
    return " ".join(line.split())


def test_80_columns_show_states_marks_newest_lines_and_hints() -> None:
    lines = drawn(80, 24, pod("game-0", ready="False", restarts=2))
    assert words(lines[1]) == "game-0 (restarted 2x) not ready 127.10.1.1"
    assert words(lines[2]) == "idle Succeeded 7s state=idle cost=-10 fine"
    assert words(lines[3]).startswith("lobby (gate) Failed 7s ")
    assert lines[-3].endswith("line 99")
    assert lines[-1] == "hint"


@pytest.mark.parametrize(("width", "height"), [(60, 15), (80, 24), (120, 40)])
def test_pods_stay_beside_many_problems_and_commands_and_all_of_it_scrolls(
    width: int, height: int
) -> None:
    scroll = Scroll()

    def draw() -> list[str]:
        return drawn(
            width,
            height,
            *(pod(f"game-{number}") for number in range(20)),
            hints=tuple(f"command {number}" for number in range(7)),
            problems=[
                ProblemSummary(
                    f"game#p{number} on game-0: the pod has no container mian",
                    "correct " * 20,
                )
                for number in range(8)
            ],
            scroll=scroll,
        )

    lines = draw()
    assert lines[0].startswith("! game#p0 on game-0")
    text = "\n".join(lines)
    assert re.search(r"^POD, PROBE.*\ngame-0.*\n.*\n  lobby", text, re.MULTILINE)
    remedy = re.search(r"^  -> correct.*\n(.*)$", text, re.MULTILINE)
    assert remedy
    assert remedy[1].startswith("  correct")
    assert re.search(r"^… .* more lines$", text, re.MULTILINE)
    assert re.search(r"line 99$", text, re.MULTILINE)

    while scroll.below:
        scroll.press("page down")
        lines = draw()
    assert any(line.startswith("game-19") for line in lines)
