"""What is wrong is told once for all pods that have it."""

import msgspec
import pytest

from kruise_probe.inspection.views import ProblemView
from kruise_probe_playground.rows import ProblemSummary, summarized

MISSING = ProblemView(
    severity="broken",
    link="container",
    reason="ContainerNotFound",
    message="no container mian",
    remedy="correct it",
    pod="game-0",
    probe="idle",
    node="node-0",
)


def changed(**fields: str) -> ProblemView:
    return msgspec.structs.replace(MISSING, **fields)


@pytest.mark.parametrize(
    ("problems", "told"),
    [
        pytest.param([MISSING], ["game#idle on game-0: no container mian"], id="one"),
        pytest.param(
            [MISSING, changed(pod="game-1", node="node-1"), changed(pod="game-2")],
            ["game#idle on game-0 and 2 more: no container mian"],
            id="the-same-on-several-pods",
        ),
        pytest.param(
            [MISSING, changed(probe="lobby")],
            ["game#idle on game-0: no container mian", "game#lobby on game-0: no container mian"],
            id="of-two-probes",
        ),
        pytest.param([changed(severity="waiting", reason="MarkerNew")], [], id="will-pass"),
        pytest.param(
            [changed(severity="waiting", reason="NoPods", pod="", probe="")],
            ["game: no container mian"],
            id="selects-nothing",
        ),
    ],
)
def test_problems_are_summarized_by_kind(problems: list[ProblemView], told: list[str]) -> None:
    found = list(summarized([("game", problems)]))
    assert found == [ProblemSummary(each, "correct it") for each in told]
