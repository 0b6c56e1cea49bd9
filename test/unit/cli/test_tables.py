"""The tables fit the terminal and show the names, reasons and remedies."""

import re
import sys
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


def view(*, pods: int = 3, message: str = LONG) -> StatusView:
    there = snapshot(
        pods=[healthy_pod(f"a-rather-long-name-of-a-pod-{number}") for number in range(pods)],
        states=[state_wire(message=message)],
    )
    return view_of(there, "no permission to list nodes")


def status_text(there: Snapshot, width: int = 0) -> str:
    return "\n".join(status_lines(view_of(there), Terminal(width), wide=False))


def explanation_text(there: Snapshot, width: int = 0, *, wide: bool = False) -> str:
    found = explanation(there, there.pods[0], [])
    return "\n".join(explanation_lines(found, Terminal(width), wide=wide))


@pytest.mark.parametrize("width", [60, 80, 140])
@pytest.mark.parametrize("wide", [False, True])
def test_no_line_is_wider_than_the_terminal(width: int, wide: bool) -> None:
    text = "\n".join(status_lines(view(), Terminal(width), wide=wide))
    assert max(map(cells, text.splitlines())) <= width
    assert "…" in text
    assert all(f"d-{number} " in text for number in range(3))


@cases(
    "width columns",
    of_60=(60, "POD PROBE STATE SINCE MARKS MESSAGE"),
    of_80=(80, "POD PROBE STATE SINCE MARKS MESSAGE"),
    of_110=(110, "POD PROBE STATE SINCE LAST MARKS MESSAGE"),
    of_120=(120, "POD PROBE STATE SINCE LAST NODE MARKS MESSAGE"),
)
def test_node_and_last_leave_first_and_marks_are_whole(width: int, columns: str) -> None:
    probe = probe_wire(policies=[policy_wire("Succeeded", {"example.com/state": "idle"})])
    pod = healthy_pod("game-servers-0-7d9f", labels={"app": "web", "example.com/state": "idle"})
    there = snapshot(
        markers=[marker(probes=[probe])], pods=[pod], states=[state_wire(message=LONG)]
    )
    text = status_text(there, width)
    assert columns.split() in [each.split() for each in text.splitlines()]
    assert "state=idle" in text


def test_output_to_a_file_is_neither_cut_nor_coloured() -> None:
    text = "\n".join(status_lines(view(), Terminal(0), wide=False))
    assert LONG.strip() in text
    assert "\x1b" not in text
    assert "note: no permission to list nodes" in text


def test_control_characters_of_messages_are_removed() -> None:
    hostile = "fine\x1b]0;owned\x07\x1b[2J\u202e\u200e\u200f\u061c\u2028\u2029back"
    text = "\n".join(status_lines(view(message=hostile), Terminal(0), wide=True))
    assert "fine ]0;owned [2J back" in text

    there = snapshot(states=[state_wire(state="Failed", message=hostile)])
    assert "\x1b" not in explanation_text(there, 80, wide=True)


def crashing(name: str, number: int) -> SeenPod:
    uid = f"00000000-0000-4000-8000-{number:012}"
    message = f"back-off {10 * number}s restarting failed container=main pod={name}_default({uid})"
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
    ended = {"terminated": {"exitCode": 1}}
    return seen_pod(healthy_pod(name), containers={"main": waiting}, last={"main": ended})


def test_equal_problems_of_many_pods_and_probes_are_one_paragraph() -> None:
    probes = [probe_wire("a"), probe_wire("b", condition="example.com/b")]
    pods = [crashing(f"pod-{number}", number) for number in range(9)]
    text = status_text(snapshot(markers=[marker(probes=probes)], seen=pods, states=[]), 80)
    assert text.splitlines()[1:8] == [
        "  broken: ContainerNotRunning  pod-0, pod-1, pod-2 and 6 more pods (a, b)",
        "    container main is not running: CrashLoopBackOff: back-off 0s restarting",
        "    failed container=main; last attempt: Terminated, exit code 1",
        "    -> find out why it does not run:",
        "       kubectl describe pod pod-0 -n default",
        "       kubectl logs pod-0 -n default -c main",
        "  POD    PROBE  STATE    SINCE  LAST  NODE    MARKS  MESSAGE",
    ]
    assert " ".join(text.splitlines()[8].split()) == "pod-0 a Pending node-1 ContainerNotRunning"


REFUSED = state_wire(state="Failed", message="dial tcp 127.1.0.1:81: connect: connection refused")
PORT = probe_wire(handler={"tcpSocket": {"port": 81}})


@cases(
    "there lines",
    hint_for_a_port_that_nobody_serves=(
        {"markers": [marker(probes=[PORT])], "states": [REFUSED]},
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
    state = there["states"][0]["state"] if there["states"] else "Unknown"
    shown = [condition_wire("example.com/healthy", {"Failed": "False"}.get(state, "Unknown"))]
    pods = [healthy_pod(name, conditions=shown) for name in "ab"]
    text = status_text(snapshot(pods=pods, **there)).splitlines()
    assert [line for line in text if line in lines] == lines


def test_limit_of_problems_counts_causes() -> None:
    probes = [
        probe_wire(f"p{n}", container=f"missing-{n}", condition=f"example.com/{n}")
        for n in range(10)
    ]
    pods = [healthy_pod("a"), healthy_pod("b")]
    text = status_text(snapshot(markers=[marker(probes=probes)], pods=pods, states=[]))
    assert text.count("broken: ContainerNotFound  a, b (p") == 8
    assert "and 2 more: -o json shows all of them" in text


@pytest.mark.parametrize("width", [60, 80])
def test_commands_of_a_remedy_survive_copying(width: int) -> None:
    view = view_of(snapshot(planned=False))
    lines = list(status_lines(view, Terminal(width), wide=False))
    at = next(number for number, line in enumerate(lines) if line.startswith("    -> check"))
    commands = [each for each in lines[at:] if each.startswith("       kubectl ")]
    assert [len(each.split()) for each in commands] == [5, 7], "each on a line of its own"
    assert max(map(cells, lines[: at + 2])) <= width
    watched = screen_text(view, Terminal(width, 40), Scroll(), wide=False).splitlines()
    assert max(map(cells, watched)) <= width


PAUSED = {"kruise-probe.io/paused": "true"}
OF_WATCHED: list[Json] = [{}, {"annotations": PAUSED}, {"probes": [probe_wire(container="no")]}]


def watched(pods: int = 12) -> StatusView:
    """A healthy marker, a paused one, and one whose pods are broken."""
    pods_of = {name: {"app": name} for name in ("healthy", "idle", "zebra")}
    there = snapshot(
        markers=[
            marker(name=name, selector={"matchLabels": labels}, **more)
            for (name, labels), more in zip(pods_of.items(), OF_WATCHED, strict=True)
        ],
        pods=[
            healthy_pod(f"{name}-{number}", labels=labels)
            for name, labels in pods_of.items()
            for number in range(pods)
        ],
        states=[state_wire("healthy#healthy")],
    )
    return view_of(there)


def screen(view: StatusView, width: int, height: int, scroll: Scroll | None = None) -> list[str]:
    lines = screen_text(view, Terminal(width, height), scroll or Scroll(), wide=False).splitlines()
    assert len(lines) <= height
    assert max(map(cells, lines)) <= width
    return lines


def test_watch_shows_everything_if_it_fits_and_markers_with_problems_first() -> None:
    lines = screen(watched(), 80, 60)
    assert lines[0].endswith("Z  3 markers, 36 pods: 24 succeeded, 0 failed, 12 pending")
    assert lines[2].startswith("default/zebra  app=zebra  12 pods")
    assert lines[3].startswith("  broken: ContainerNotFound  zebra-0, zebra-1, zebra-2 and 9")
    assert [line.split()[0] for line in lines if line.startswith("default/")] == [
        "default/zebra",
        "default/idle",
        "default/healthy",
    ]
    assert "q ends" not in lines[-1]


@pytest.mark.parametrize(("width", "height"), [(60, 15), (80, 24), (120, 40)])
def test_watch_shows_three_pods_below_any_number_of_problems_and_scrolls(
    width: int, height: int
) -> None:
    zebra = watched(40).markers[2]
    problem = zebra.problems[0]
    problems = [replace(problem, reason=f"Reason{number}") for number in range(7)]
    view = replace(watched(40), markers=[replace(zebra, problems=problems)])
    scroll = Scroll()

    first = screen(view, width, height, scroll)
    assert sum(line.startswith("  zebra-") for line in first) >= 3
    assert any("Reason0" in line for line in first)
    assert re.match(r"… \d+ more lines. Arrows and PgUp, PgDn scroll, q ends", first[-1])

    seen = set(first)
    while scroll.below:
        scroll.press("down")
        seen |= set(screen(view, width, height, scroll))
    for number in range(7):
        assert any(f"Reason{number}" in line for line in seen)
    for number in range(40):
        assert any(line.startswith(f"  zebra-{number} ") for line in seen)
    last = screen(view, width, height, scroll)
    assert (len(last), last[0], last[-1]) == (
        len(first),
        first[0],
        "Arrows and PgUp, PgDn scroll, q ends",
    )

    for _ in range(100):
        scroll.press("page up")
    assert screen(view, width, height, scroll) == first


def test_watch_names_the_marker_of_a_hint() -> None:
    other = marker(name="other", selector={"matchLabels": {"app": "other"}})
    failed = [condition_wire("example.com/healthy", "False")]
    pods = [healthy_pod(f"web-{number}", conditions=failed) for number in range(30)]
    markers = [other, marker(probes=[PORT])]
    lines = screen(view_of(snapshot(markers=markers, pods=pods, states=[REFUSED])), 80, 24)
    hint = next(number for number, line in enumerate(lines) if line.startswith("  hint: Failed"))
    assert lines[hint - 1] == "default/web"


def test_redraw_of_thousands_of_broken_pods_and_long_texts_need_little_time() -> None:
    zebra = watched(1).markers[2]
    problems = [replace(zebra.problems[0], pod=f"zebra-{number}") for number in range(5000)]
    many = replace(watched(1), markers=[replace(zebra, problems=problems)])
    began = process_time()
    _ = screen_text(many, Terminal(80, 5), Scroll(), wide=False)
    assert head("\u0301" * 9999 + "x" * 99, 60).count("x") == 59
    assert process_time() - began < 1


@cases(
    "variables terminal escapes",
    terminal=({"TERM": "xterm"}, True, True),
    dumb=({"TERM": "dumb"}, True, False),
    no_color=({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
    forced_pipe=({"FORCE_COLOR": "1"}, False, True),
    no_color_wins=({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
    no_color_wins_in_a_pipe=({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
    pipe=({"TERM": "xterm"}, False, False),
)
def test_colours_follow_the_terminal_and_its_variables(
    variables: dict[str, str],
    terminal: bool,
    escapes: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("TERM", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.setenv(name, variables.get(name, ""))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    texts = ["\n".join(status_lines(view(), Terminal.of_stdout(), wide=False))]
    for line in ("--help", "daemon --help", "completion --help", f"lint {BROKEN / 'host.yaml'}"):
        run(line.split(), {})
        texts.append(capsys.readouterr().out)
    assert all(texts)
    assert ["\x1b[" in each for each in texts] == [escapes] * len(texts)


SELECTED = ("  Running on node-1", "", "web selects it: app=web", "  healthy  exec true")


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
    found = explanation_lines(explanation(there, there.pods[0], []), Terminal(0), wide=wide)
    begins = [lines[0], *SELECTED, *lines[1:]]
    assert [each[: len(line)] for each, line in zip(found, begins, strict=False)] == begins


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
    there = snapshot(markers=[other, *([marker()] if selected else [])])
    text = explanation_text(there, wide=wide)
    assert (f"other: the selector requires app={app}" in text) is listed
    assert ("no PodProbeMarker selects this pod" in text) is not selected


UNKNOWN = {"reason": "PodFinished", "message": "The pod has finished (Failed)."}


@cases(
    "condition pod shown",
    paused=(
        condition_wire("example.com/healthy", "True", message="0 players"),
        {"annotations": PAUSED},
        "last result  Succeeded: 0 players; idle=yes",
    ),
    finished=(
        condition_wire("example.com/healthy", "Unknown", **UNKNOWN),
        {"phase": "Failed"},
        "still set  idle=yes",
    ),
)
def test_explanation_without_links_to_a_result_has_what_the_pod_shows(
    condition: Json, pod: Json, shown: str
) -> None:
    probe = probe_wire(policies=[policy_wire("Succeeded", {"example.com/idle": "yes"})])
    labels = {"app": "web", "example.com/idle": "yes"}
    shows = healthy_pod(labels=labels, conditions=[condition], **pod)
    there = snapshot(markers=[marker(probes=[probe])], pods=[shows], states=[])
    assert shown in explanation_text(there)


def test_pods_with_problems_come_first_and_others_in_natural_order() -> None:
    starting = [container_wire(startup_probe=True)]
    pods = [healthy_pod(each, containers=starting) for each in ("game-10", "game-2", "game-1")]
    pods.append(healthy_pod("game-9", containers=[container_wire("other")]))
    text = status_text(snapshot(pods=pods))
    rows = [each.split()[0] for each in text.splitlines() if each.startswith("  game-")]
    assert rows == ["game-9", "game-1", "game-2", "game-10"]
    assert text.index("broken: ContainerNotFound") < text.index("waiting: ContainerNotStarted")


TWO_PROBES = marker(probes=[probe_wire(), probe_wire("bad", handler={"tcpSocket": {"port": 0}})])


@cases(
    "there message",
    edited=({"states": [state_wire(message="fine", probe_hash="0" * 16)]}, "(before the last edit) fine"),
    paused=({"markers": [marker(annotations=PAUSED)], "pods": [pod_wire()], "states": []}, "ProbePaused"),
    terminating=({"markers": [TWO_PROBES], "pods": [pod_wire(deleting=True)], "states": []}, "Terminating"),
)  # fmt: skip
def test_message_says_where_a_result_is_from_or_why_there_is_none(
    there: Json, message: str
) -> None:
    (row,) = [each for each in status_text(snapshot(**there)).splitlines() if "  healthy" in each]
    assert row.endswith(f"  {message}")


AGES = {
    "now": ("2026-01-01T00:00:00Z", "0s"),
    "clock-ahead": ("2026-01-01T00:00:10Z", "0s"),
    "seconds": ("2025-12-31T23:58:01Z", "119s"),
    "minutes": ("2025-12-31T23:58:00Z", "2m"),
    "hours": ("2025-12-31T22:00:00Z", "2h"),
    "days": ("2025-12-29T00:00:00Z", "3d"),
    "never": ("", ""),
}


@cases("stamp text", **AGES)
def test_ages_are_short(stamp: str, text: str) -> None:
    assert age(stamp, datetime(2026, 1, 1, tzinfo=UTC)) == text


def attempts(
    *names: str, message: str = "fine", state: str = "Succeeded", remedy: str = ""
) -> AttemptsView:
    """The results of `try` for the probes `<marker>#<probe>`."""
    return AttemptsView(
        version=1, time="", notes=["a note"], namespace="default", pod="web-0", node="node-1",
        attempts=[
            AttemptView(
                marker=each.partition("#")[0], probe=each.partition("#")[2], container_name="main", check="exec true",
                state=state, message=message, duration_seconds=0.123, pod_condition_type="example.com/idle",
                condition_status="True", labels={"example.com/role": "main", "old": None}, annotations={"cost": "-5"}, remedy=remedy, notes=[],
            )
            for each in names
        ],
    )  # fmt: skip


def test_attempt_names_condition_labels_and_annotations() -> None:
    tried = attempts("web#idle", remedy="start it")
    assert list(attempt_lines(tried, Terminal()))[2:] == [
        "  idle  Succeeded in 0.12s",
        "    condition    example.com/idle=True",
        "    labels       example.com/role=main, old-",
        "    annotations  cost=-5",
        "    message      fine",
        "    -> start it",
    ]


def test_attempts_of_several_markers_name_the_marker() -> None:
    lines = list(attempt_lines(attempts("a#x", "b#x"), Terminal()))
    assert [each.split()[0] for each in lines if "Succeeded" in each] == ["a#x", "b#x"]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_attempts_fit_the_terminal_and_lose_nothing(width: int) -> None:
    of_pod = "ContainerNotRunning: Error: no; kubectl drain node-1"
    words = f"{of_pod} {' '.join(f'word-{number}' for number in range(100))}"
    tried = attempts("web#idle", message=f"{words}\x1b[2J")
    text = "\n".join(attempt_lines(tried, Terminal(width)))
    assert max(map(cells, text.splitlines())) <= width
    assert f"message {words} [2J" in " ".join(text.split())
    assert "\x1b" not in text
    copied = ["kubectl describe pod web-0 -n default", "kubectl logs web-0 -n default --previous"]
    remedy = f"find out why: {'; '.join(copied)}"
    blocked = attempts("web#idle", message=of_pod, state="Unknown", remedy=remedy)
    lines = list(attempt_lines(blocked, Terminal(width)))
    assert [each.strip() for each in lines[-2:]] == copied
    assert of_pod in " ".join(" ".join(lines).split())


def test_marker_without_probes_has_no_tables() -> None:
    found = view_of(snapshot(markers=[marker(probes=[])]))
    lines = list(status_lines(found, Terminal(80), wide=True))
    assert lines[0].startswith("default/web  app=web")
    assert not any("PROBE" in each or "MESSAGE" in each for each in lines)
