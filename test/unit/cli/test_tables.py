"""The tables fit the terminal and show the names, reasons and remedies."""

import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from time import process_time

import pytest
from msgspec.structs import replace
from support.builders import (
    condition_wire,
    container_wire,
    pod_wire,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.cases import cases
from support.linting import BROKEN
from support.snapshots import healthy_pod, marker, seen_pod, snapshot
from support.wire import Json

from kruise_probe.api.times import age
from kruise_probe.cli.attempt_text import attempt_lines
from kruise_probe.cli.explanation_text import explanation_lines
from kruise_probe.cli.main import run
from kruise_probe.cli.screen import Scroll
from kruise_probe.cli.tables import status_lines
from kruise_probe.cli.terminal import Terminal, cells, head
from kruise_probe.cli.watch_text import screen_text
from kruise_probe.inspection.attempts import AttemptsView, AttemptView
from kruise_probe.inspection.explanation import explanation
from kruise_probe.inspection.result_links import NOTHING_LISTENS
from kruise_probe.inspection.seen_pods import SeenPod
from kruise_probe.inspection.snapshot import Snapshot
from kruise_probe.inspection.status import status_view
from kruise_probe.inspection.views import StatusView

LONG = "对局进行中 " * 40


def view_of(there: Snapshot, *notes: str) -> StatusView:
    return status_view(there, there.markers, notes)


def view(message: str = LONG) -> StatusView:
    there = snapshot(
        pods=[healthy_pod(f"a-rather-long-name-of-a-pod-{number}") for number in range(3)],
        states=[state_wire(message=message)],
    )
    return view_of(there, "no permission to list nodes")


def text_of(view: StatusView, width: int = 0, *, wide: bool = False) -> str:
    return "\n".join(status_lines(view, Terminal(width), wide=wide))


def status_text(there: Snapshot, width: int = 0) -> str:
    return text_of(view_of(there), width)


def explanation_text(there: Snapshot, width: int = 0, *, wide: bool = False) -> str:
    found = explanation(there, there.pods[0], [])
    return "\n".join(explanation_lines(found, Terminal(width), wide=wide))


def widest(lines: Iterable[str]) -> int:
    return max(map(cells, lines))


def marker_with(*probes: Json) -> Json:
    return marker(probes=probes)


@pytest.mark.parametrize("width", [60, 80, 140])
@pytest.mark.parametrize("wide", [False, True])
def test_no_line_is_wider_than_the_terminal(width: int, wide: bool) -> None:
    text = text_of(view(), width, wide=wide)
    assert widest(text.splitlines()) <= width
    assert "…" in text
    for number in range(3):
        assert f"d-{number} " in text


@cases(
    "width columns",
    of_60=(60, "POD PROBE STATE SINCE MARKS MESSAGE"),
    of_80=(80, "POD PROBE STATE SINCE MARKS MESSAGE"),
    of_110=(110, "POD PROBE STATE SINCE LAST MARKS MESSAGE"),
    of_120=(120, "POD PROBE STATE SINCE LAST NODE MARKS MESSAGE"),
)
def test_node_and_last_leave_first_and_marks_are_whole(width: int, columns: str) -> None:
    marks = {"example.com/state": "idle"}
    probe = probe_wire(policies=[policy_wire(labels=marks)])
    pod = healthy_pod("game-servers-0-7d9f", labels={"app": "web", **marks})
    there = snapshot(
        markers=[marker_with(probe)],
        pods=[pod],
        states=[state_wire(message=LONG)],
    )
    text = status_text(there, width)
    assert columns.split() in [line.split() for line in text.splitlines()]
    assert "state=idle" in text


def test_output_to_a_file_is_neither_cut_nor_coloured() -> None:
    text = text_of(view())
    assert LONG.strip() in text
    assert "\x1b" not in text
    assert "note: no permission to list nodes" in text


def test_control_characters_of_messages_are_removed() -> None:
    hostile = "fine\x1b]0;owned\x07\x1b[2J\u202e\u200e\u200f\u061c\u2028\u2029back"
    text = text_of(view(hostile), wide=True)
    assert "fine ]0;owned [2J back" in text

    there = snapshot(states=[state_wire(state="Failed", message=hostile)])
    assert "\x1b" not in explanation_text(there, 80, wide=True)


def crashing(number: int) -> SeenPod:
    name = f"pod-{number}"
    uid = f"00000000-0000-4000-8000-{number:012}"
    message = f"back-off {10 * number}s restarting failed container=main pod={name}_default({uid})"
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
    ended = {"terminated": {"exitCode": 1}}
    return seen_pod(
        healthy_pod(name),
        containers={"main": waiting},
        last={"main": ended},
    )


def test_equal_problems_of_many_pods_and_probes_are_one_paragraph() -> None:
    there = snapshot(
        markers=[marker_with(probe_wire("a"), probe_wire("b", condition="example.com/b"))],
        seen=[crashing(number) for number in range(9)],
        states=[],
    )
    lines = status_text(there, 80).splitlines()
    assert lines[1:8] == [
        "  broken: ContainerNotRunning  pod-0, pod-1, pod-2 and 6 more pods (a, b)",
        "    container main is not running: CrashLoopBackOff: back-off 0s restarting",
        "    failed container=main; last attempt: Terminated, exit code 1",
        "    -> find out why it does not run:",
        "       kubectl describe pod pod-0 -n default",
        "       kubectl logs pod-0 -n default -c main",
        "  POD    PROBE  STATE    SINCE  LAST  NODE    MARKS  MESSAGE",
    ]
    assert lines[8].split() == ["pod-0", "a", "Pending", "node-1", "ContainerNotRunning"]


REFUSED = state_wire(state="Failed", message="dial tcp 127.1.0.1:81: connect: connection refused")
PORT = probe_wire(handler={"tcpSocket": {"port": 81}})


@cases(
    "there lines",
    hint_for_a_port_that_nobody_serves=(
        {"markers": [marker_with(PORT)], "states": [REFUSED]},
        [
            "default/web  app=web  2 pods: 0 succeeded, 2 failed, 0 unknown",
            "  hint: Failed  a, b (healthy)",
            f"    -> {NOTHING_LISTENS}",
        ],
    ),
    pending_as_in_the_row=(
        {"states": []},
        ["default/web  app=web  2 pods: 0 succeeded, 0 failed, 2 pending"],
    ),
)
def test_head_of_a_marker_and_hints(there: Json, lines: list[str]) -> None:
    status = "False" if there["states"] else "Unknown"
    shown = [condition_wire("example.com/healthy", status)]
    pods = [healthy_pod(name, conditions=shown) for name in "ab"]
    text = status_text(snapshot(pods=pods, **there))
    assert [line for line in text.splitlines() if line in lines] == lines


def test_limit_of_problems_counts_causes() -> None:
    probes = [
        probe_wire(
            f"p{number}",
            container=f"missing-{number}",
            condition=f"example.com/{number}",
        )
        for number in range(10)
    ]
    there = snapshot(
        markers=[marker_with(*probes)],
        pods=[healthy_pod("a"), healthy_pod("b")],
        states=[],
    )
    text = status_text(there)
    assert text.count("broken: ContainerNotFound  a, b (p") == 8
    assert "and 2 more: -o json shows all of them" in text


@pytest.mark.parametrize("width", [60, 80])
def test_commands_of_a_remedy_survive_copying(width: int) -> None:
    view = view_of(snapshot(planned=False))
    lines = text_of(view, width).splitlines()
    remedy = next(number for number, line in enumerate(lines) if line.startswith("    -> check"))
    commands = [line for line in lines[remedy:] if line.startswith("       kubectl ")]
    lengths = [len(command.split()) for command in commands]
    assert lengths == [5, 7], "each on a line of its own"
    assert widest(lines[: remedy + 2]) <= width
    screen(view, width, 40)


PAUSED = {"kruise-probe.io/paused": "true"}


def watched(pods: int = 12) -> StatusView:
    """A healthy marker, a paused one, and one whose pods are broken."""
    changes: dict[str, Json] = {
        "healthy": {},
        "idle": {"annotations": PAUSED},
        "zebra": {"probes": [probe_wire(container="no")]},
    }
    markers: list[Json] = []
    wires: list[Json] = []
    for name, change in changes.items():
        labels = {"app": name}
        markers.append(marker(name=name, selector={"matchLabels": labels}, **change))
        wires += [healthy_pod(f"{name}-{number}", labels=labels) for number in range(pods)]
    states = [state_wire("healthy#healthy")]
    return view_of(snapshot(markers=markers, pods=wires, states=states))


def screen(view: StatusView, width: int, height: int, scroll: Scroll | None = None) -> list[str]:
    terminal = Terminal(width, height)
    lines = screen_text(view, terminal, scroll or Scroll(), wide=False).splitlines()
    assert len(lines) <= height
    assert widest(lines) <= width
    return lines


def test_watch_shows_everything_if_it_fits_and_markers_with_problems_first() -> None:
    lines = screen(watched(), 80, 60)
    assert lines[0].endswith("Z  3 markers, 36 pods: 24 succeeded, 0 failed, 12 pending")
    assert lines[2].startswith("default/zebra  app=zebra  12 pods")
    assert lines[3].startswith("  broken: ContainerNotFound  zebra-0, zebra-1, zebra-2 and 9")
    markers = [line.split()[0] for line in lines if line.startswith("default/")]
    assert markers == ["default/zebra", "default/idle", "default/healthy"]
    assert "q ends" not in lines[-1]


def watched_with(changes: list[Json], *, pods: int) -> StatusView:
    """Only the marker with a problem, which it has once for each change."""
    view = watched(pods)
    zebra = view.markers[2]
    problems = [replace(zebra.problems[0], **change) for change in changes]
    return replace(view, markers=[replace(zebra, problems=problems)])


@pytest.mark.parametrize(("width", "height"), [(60, 15), (80, 24), (120, 40)])
def test_watch_shows_three_pods_below_any_number_of_problems_and_scrolls(
    width: int, height: int
) -> None:
    view = watched_with([{"reason": f"Reason{number}"} for number in range(7)], pods=40)
    scroll = Scroll()

    first = screen(view, width, height, scroll)
    assert sum(line.startswith("  zebra-") for line in first) >= 3
    assert "Reason0" in "".join(first)
    assert re.match(r"… \d+ more lines. Arrows and PgUp, PgDn scroll, q ends", first[-1])

    last = first
    shown = "\n".join(first)
    while scroll.below:
        scroll.press("down")
        last = screen(view, width, height, scroll)
        shown = "\n".join([shown, *last])
    for number in range(7):
        assert f"Reason{number}" in shown
    for number in range(40):
        assert f"\n  zebra-{number} " in shown
    assert len(last) == len(first)
    assert last[0] == first[0]
    assert last[-1] == "Arrows and PgUp, PgDn scroll, q ends"

    for _ in range(100):
        scroll.press("page up")
    assert screen(view, width, height, scroll) == first


def test_watch_names_the_marker_of_a_hint() -> None:
    other = marker(name="other", selector={"matchLabels": {"app": "other"}})
    failed = [condition_wire("example.com/healthy", "False")]
    there = snapshot(
        markers=[other, marker_with(PORT)],
        pods=[healthy_pod(f"web-{number}", conditions=failed) for number in range(30)],
        states=[REFUSED],
    )
    lines = screen(view_of(there), 80, 24)
    hint = next(number for number, line in enumerate(lines) if line.startswith("  hint: Failed"))
    assert lines[hint - 1] == "default/web"


def test_redraw_of_thousands_of_broken_pods_and_long_texts_need_little_time() -> None:
    many = watched_with([{"pod": f"zebra-{number}"} for number in range(5000)], pods=1)
    long = "\u0301" * 9999 + "x" * 99
    began = process_time()
    _ = screen_text(many, Terminal(80, 5), Scroll(), wide=False)
    assert head(long, 60).count("x") == 59
    assert process_time() - began < 1


@cases(
    "variables terminal escapes",
    terminal=("TERM=xterm", True, True),
    dumb=("TERM=dumb", True, False),
    no_color=("TERM=xterm NO_COLOR=1", True, False),
    forced_pipe=("FORCE_COLOR=1", False, True),
    no_color_wins=("FORCE_COLOR=1 NO_COLOR=1", True, False),
    no_color_wins_in_a_pipe=("FORCE_COLOR=1 NO_COLOR=1", False, False),
    pipe=("TERM=xterm", False, False),
)
def test_colours_follow_the_terminal_and_its_variables(
    variables: str,
    terminal: bool,
    escapes: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for assignment in f"TERM= NO_COLOR= FORCE_COLOR= {variables}".split():
        monkeypatch.setenv(*assignment.split("="))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    texts = ["\n".join(status_lines(view(), Terminal.of_stdout(), wide=False))]
    for line in ("--help", "daemon --help", "completion --help", f"lint {BROKEN / 'host.yaml'}"):
        run(line.split(), {})
        texts.append(capsys.readouterr().out)
    for text in texts:
        assert text
        assert ("\x1b[" in text) == escapes


@cases(
    "more wide lines",
    working_links_are_folded=(
        {},
        False,
        [
            "default/web-0: 1 of 1 probes works (1 Succeeded)",
            "    ok  7 links  Succeeded: fine; example.com/healthy is True",
        ],
    ),
    working_links_before_a_broken_one_are_folded=(
        {"planned": False},
        False,
        [
            "default/web-0: 0 of 1 probes work",
            "    ok      3 links       marker, pod, container",
            "    broken  NodePodProbe  NodePodProbe node-1",
            "                          -> check",
            "                             kubectl",
            "                             kubectl",
            "                             https://kruise-probe.github.io/kruise-probe/reasons.html#entrymissing",
            "            last result   Succeeded: fine",
        ],
    ),
    wide_shows_every_link=(
        {},
        True,
        [
            "default/web-0: 1 of 1 probes works (1 Succeeded)",
            "    ok  marker        default/web selects app=web",
            "    ok  pod           Running on node-1, 127.1.0.1",
            "    ok  container     main is running",
            "    ok  NodePodProbe  node-1 contains the probe",
            "    ok  daemon        the daemon on node-1 is running",
            "    ok  result        Succeeded: fine",
            "    ok  condition     example.com/healthy is True",
        ],
    ),
)
def test_explanation_starts_with_a_summary_and_folds_links(
    more: Json, wide: bool, lines: list[str]
) -> None:
    there = snapshot(states=[state_wire(message="fine")], **more)
    summary, *links = lines
    begins = [
        summary,
        "  Running on node-1",
        "",
        "web selects it: app=web",
        "  healthy  exec true",
        *links,
    ]

    found = explanation_text(there, wide=wide).splitlines()

    for line, begin in zip(found, begins, strict=False):
        assert line.startswith(begin)
    assert len(found) >= len(begins)


@cases(
    "selected app wide listed",
    selected=(True, "shop", False, False),
    selected_but_for_a_typo=(True, "wbe", False, True),
    selected_wide=(True, "shop", True, True),
    not_selected=(False, "shop", False, True),
)
def test_explanation_lists_markers_that_do_not_select_the_pod(
    selected: bool, app: str, wide: bool, listed: bool
) -> None:
    other = marker(name="other", selector={"matchLabels": {"app": app}})
    markers = [other, marker()] if selected else [other]
    text = explanation_text(snapshot(markers=markers), wide=wide)
    assert (f"other: the selector requires app={app}" in text) is listed
    assert ("no PodProbeMarker selects this pod" in text) is not selected


@cases(
    "condition pod shown",
    paused=(
        condition_wire("example.com/healthy", message="0 players"),
        {"annotations": PAUSED},
        "last result  Succeeded: 0 players; idle=yes",
    ),
    finished=(
        condition_wire(
            "example.com/healthy",
            "Unknown",
            reason="PodFinished",
            message="The pod has finished (Failed).",
        ),
        {"phase": "Failed"},
        "still set  idle=yes",
    ),
)
def test_explanation_without_links_to_a_result_has_what_the_pod_shows(
    condition: Json, pod: Json, shown: str
) -> None:
    marks = {"example.com/idle": "yes"}
    probe = probe_wire(policies=[policy_wire(labels=marks)])
    there = snapshot(
        markers=[marker_with(probe)],
        pods=[healthy_pod(labels={"app": "web", **marks}, conditions=[condition], **pod)],
        states=[],
    )
    assert shown in explanation_text(there)


def test_pods_with_problems_come_first_and_others_in_natural_order() -> None:
    starting = [container_wire(startup_probe=True)]
    pods = [healthy_pod(name, containers=starting) for name in ("game-10", "game-2", "game-1")]
    pods.append(healthy_pod("game-9", containers=[container_wire("other")]))
    text = status_text(snapshot(pods=pods))
    rows = re.findall(r"^  (game-\d+) ", text, re.MULTILINE)
    assert rows == ["game-9", "game-1", "game-2", "game-10"]
    assert text.index("broken: ContainerNotFound") < text.index("waiting: ContainerNotStarted")


BAD = probe_wire("bad", handler={"tcpSocket": {"port": 0}})


@cases(
    "there message",
    edited=(
        {"states": [state_wire(message="fine", probe_hash="0" * 16)]},
        "(before the last edit) fine",
    ),
    paused=(
        {"markers": [marker(annotations=PAUSED)], "pods": [pod_wire()], "states": []},
        "ProbePaused",
    ),
    terminating=(
        {
            "markers": [marker_with(probe_wire(), BAD)],
            "pods": [pod_wire(deleting=True)],
            "states": [],
        },
        "Terminating",
    ),
)
def test_message_says_where_a_result_is_from_or_why_there_is_none(
    there: Json, message: str
) -> None:
    lines = status_text(snapshot(**there)).splitlines()
    (row,) = [line for line in lines if "  healthy" in line]
    assert row.endswith(f"  {message}")


@cases(
    "stamp text",
    now=("2026-01-01T00:00:00Z", "0s"),
    clock_ahead=("2026-01-01T00:00:10Z", "0s"),
    seconds=("2025-12-31T23:58:01Z", "119s"),
    minutes=("2025-12-31T23:58:00Z", "2m"),
    hours=("2025-12-31T22:00:00Z", "2h"),
    days=("2025-12-29T00:00:00Z", "3d"),
    never=("", ""),
)
def test_ages_are_short(stamp: str, text: str) -> None:
    assert age(stamp, datetime(2026, 1, 1, tzinfo=UTC)) == text


def attempt_text(width: int, *attempts: AttemptView) -> list[str]:
    """The lines of `try` after these attempts."""
    view = AttemptsView(
        version=1,
        time="",
        notes=["a note"],
        namespace="default",
        pod="web-0",
        node="node-1",
        attempts=list(attempts),
    )
    return list(attempt_lines(view, Terminal(width)))


ATTEMPT = AttemptView(
    marker="web",
    probe="idle",
    container_name="main",
    check="exec true",
    state="Succeeded",
    message="fine",
    duration_seconds=0.123,
    pod_condition_type="example.com/idle",
    condition_status="True",
    labels={"example.com/role": "main", "old": None},
    annotations={"cost": "-5"},
    remedy="",
    notes=[],
)


def test_attempt_names_condition_labels_and_annotations() -> None:
    lines = attempt_text(0, replace(ATTEMPT, remedy="start it"))
    assert lines[2:] == [
        "  idle  Succeeded in 0.12s",
        "    condition    example.com/idle=True",
        "    labels       example.com/role=main, old-",
        "    annotations  cost=-5",
        "    message      fine",
        "    -> start it",
    ]


def test_attempts_of_several_markers_name_the_marker() -> None:
    lines = attempt_text(0, replace(ATTEMPT, marker="a"), replace(ATTEMPT, marker="b"))
    names = [line.split()[0] for line in lines if "Succeeded" in line]
    assert names == ["a#idle", "b#idle"]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_attempts_fit_the_terminal_and_lose_nothing(width: int) -> None:
    of_pod = "ContainerNotRunning: Error: no; kubectl drain node-1"
    words = " ".join(f"word-{number}" for number in range(100))
    lines = attempt_text(width, replace(ATTEMPT, message=f"{of_pod} {words}\x1b[2J"))
    text = " ".join(lines)
    assert widest(lines) <= width
    assert f"message {of_pod} {words} [2J" in " ".join(text.split())
    assert "\x1b" not in text

    copied = ["kubectl describe pod web-0 -n default", "kubectl logs web-0 -n default --previous"]
    blocked = replace(
        ATTEMPT,
        message=of_pod,
        state="Unknown",
        remedy=f"find out why: {'; '.join(copied)}",
    )
    lines = attempt_text(width, blocked)
    assert [line.strip() for line in lines[-2:]] == copied
    assert of_pod in " ".join(" ".join(lines).split())


def test_marker_without_probes_has_no_tables() -> None:
    text = text_of(view_of(snapshot(markers=[marker_with()])), 80, wide=True)
    assert text.startswith("default/web  app=web")
    assert "PROBE" not in text
    assert "MESSAGE" not in text
