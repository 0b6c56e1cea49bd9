"""One seed is one run: every event at the same time, in the same order."""

from pathlib import Path

import pytest
from simulation.plan import make_plan
from simulation.runner import judge
from support.shell import python
from support.shrinking import shrink

TEST_FOLDER = Path(__file__).parents[1]

PRINT_LOG = """
import sys
sys.path.insert(0, sys.argv[1])
from simulation.plan import make_plan
from simulation.runner import judge
print(*judge(make_plan(int(sys.argv[2]))).log, sep="\\n")
"""


@pytest.mark.parametrize("seed", [1, 5, 12])
def test_a_seed_gives_the_same_log_here_and_in_a_new_process(seed: int) -> None:
    first = judge(make_plan(seed))
    judge(make_plan(seed + 1))
    again = judge(make_plan(seed))
    assert again == first
    elsewhere = python(
        "-c",
        PRINT_LOG,
        str(TEST_FOLDER),
        str(seed),
        check=True,
    )
    assert elsewhere.stdout.splitlines() == [str(event) for event in first.log]


def test_different_seeds_give_different_runs() -> None:
    assert judge(make_plan(1)).log != judge(make_plan(2)).log


def test_shrinking_keeps_only_the_steps_that_the_failure_needs() -> None:
    assert shrink(
        range(12),
        lambda steps: {3, 8} <= set(steps),
    ) == [3, 8]
