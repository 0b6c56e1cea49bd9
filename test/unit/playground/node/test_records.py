"""How long a container that ended waits."""

import pytest
from support.node_records import node_pod, record

from kruise_probe_playground.node.lifecycle import HEALTHY_SECONDS, backoff_seconds


def test_backoff_grows_from_zero_to_its_maximum() -> None:
    assert [backoff_seconds(ends) for ends in range(8)] == [0, 0, 1, 2, 4, 8, 10, 10]


@pytest.mark.parametrize(
    ("ran_seconds", "deadline"),
    [
        pytest.param(1.0, 100 + 1.0 + 2, id="short-runs-add-up"),
        pytest.param(HEALTHY_SECONDS, 100 + HEALTHY_SECONDS, id="a-long-run-forgives"),
    ],
)
def test_backoff_counts_consecutive_quick_ends(ran_seconds: float, deadline: float) -> None:
    ended = record(node_pod("a").spec.containers[0], "1")
    ended.quick_ends = 2
    ended.began = 100.0
    ended.note_end(loop_time=100 + ran_seconds)
    assert ended.restart_deadline == deadline
    assert not ended.started
