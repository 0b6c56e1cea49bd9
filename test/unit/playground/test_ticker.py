"""Changes in lines for people."""

from typing import Any

import msgspec
import pytest

from kruise_probe.api.names import ProbeName
from kruise_probe_playground.rows import Mark, PodRow, ProbeRow
from kruise_probe_playground.ticker import POD_EVENTS, changes, event_line

BEFORE = PodRow("default", "web", "Running", "", "", 0, ())


def probed(state: str, message: str = "", *marks: Mark) -> PodRow:
    probe = ProbeRow(ProbeName("web", "idle"), state, "", message, marks=marks)
    return BEFORE._replace(probes=(probe,))


def marked(*marks: Mark) -> PodRow:
    return probed("", "", *marks)


COST = Mark("annotation", "controller.kubernetes.io/pod-deletion-cost", "-10")
LABEL = Mark("label", "state", "idle")


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        pytest.param(None, probed("Failed"), ["web was created: Running", "web idle Failed"], id="new"),
        pytest.param(BEFORE, None, ["web was deleted"], id="gone"),
        pytest.param(BEFORE, BEFORE._replace(restarts=2), ["web container restarted (2)"], id="restart"),
        pytest.param(BEFORE, BEFORE._replace(ready="True"), ["web Ready: True"], id="ready"),
        pytest.param(BEFORE, probed("Failed", "busy"), ["web idle Failed: busy"], id="first-result"),
        pytest.param(probed("Failed"), probed("Succeeded"), ["web idle Failed → Succeeded"], id="flip"),
        pytest.param(probed("Failed", "a"), probed("Failed", "b"), [], id="message-alone-is-no-news"),
        pytest.param(marked(LABEL), marked(LABEL._replace(value="busy")), ["web idle state=busy"], id="changed-mark"),
        pytest.param(marked(LABEL), marked(), ["web idle state removed"], id="removed-mark"),
        pytest.param(marked(LABEL), BEFORE, ["web idle state removed"], id="mark-of-a-removed-probe"),
        pytest.param(
            probed("Failed"), probed("Succeeded", "0 players", LABEL, COST),
            ["web idle Failed → Succeeded: 0 players · cost=-10 · state=idle"], id="state-message-and-marks",
        ),
    ],
)  # fmt: skip
def test_each_change_is_a_line(before: Any, after: Any, lines: list[str]) -> None:
    assert [f"{line.about} {line.text}" for line in changes(before, after)] == lines


def test_event_line_contains_the_count() -> None:
    involved = {"kind": "Pod", "namespace": "default", "name": "web"}
    wire = {"metadata": {"name": "e"}, "involvedObject": involved, "reason": "R", "message": "m"}
    line = event_line(POD_EVENTS.decode(msgspec.json.encode({**wire, "count": 3})))
    assert (line.about, line.text) == ("web", "event R x3: m")
