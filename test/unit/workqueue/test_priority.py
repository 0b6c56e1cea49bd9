from collections import Counter

import pytest

from kruise_probe.workqueue.priority import (
    FAIR_TURN_AFTER,
    OVERDUE_SECONDS,
    Priority,
    PriorityFifo,
)

LOW, NORMAL, HIGH = Priority


def fifo_of(*keys: tuple[str, Priority], now: float = 0.0) -> PriorityFifo[str]:
    fifo: PriorityFifo[str] = PriorityFifo()
    for key, priority in keys:
        fifo.push(key, priority, now)
    return fifo


def drain(fifo: PriorityFifo[str], now: float = 0.0) -> list[str]:
    return [fifo.pop(now) for _ in range(len(fifo))]


def test_keys_of_one_band_leave_in_the_order_of_their_arrival() -> None:
    assert drain(fifo_of(("a", LOW), ("b", LOW), ("c", LOW))) == ["a", "b", "c"]


def test_higher_bands_leave_first() -> None:
    assert drain(fifo_of(("low", LOW), ("normal", NORMAL), ("high", HIGH))) == [
        "high",
        "normal",
        "low",
    ]


def test_a_touched_key_goes_to_the_end_of_its_new_band() -> None:
    fifo = fifo_of(("late", LOW), ("first", HIGH), ("low", LOW))
    fifo.touch("late", LOW, HIGH)
    assert drain(fifo) == ["first", "late", "low"]


def test_popping_an_empty_queue_is_an_error() -> None:
    with pytest.raises(IndexError):
        PriorityFifo[str]().pop(0.0)


def test_a_high_key_is_next_behind_ten_thousand_low_ones_that_are_long_overdue() -> None:
    fifo = fifo_of(*((f"low-{n}", LOW) for n in range(10_000)))
    now = 10 * OVERDUE_SECONDS
    for _ in range(50):
        fifo.pop(now)
    fifo.push("high", HIGH, now)
    assert fifo.pop(now) == "high"


@pytest.mark.parametrize(
    ("waited", "share"),
    [
        pytest.param(0.0, 1 / (FAIR_TURN_AFTER + 1), id="one-in-eight-while-fresh"),
        pytest.param(OVERDUE_SECONDS, 1 / 2, id="every-second-once-overdue"),
    ],
)
def test_a_lower_band_has_its_share_under_a_saturated_higher_one(
    waited: float, share: float
) -> None:
    fifo = fifo_of(*((f"low-{n}", LOW) for n in range(800)))
    served = Counter[str]()
    for turn in range(800):
        fifo.push(f"high-{turn}", HIGH, waited)
        served[fifo.pop(waited).split("-")[0]] += 1
    assert served["low"] == 800 * share


def test_two_waiting_bands_take_the_fair_turns_in_rotation() -> None:
    fifo = fifo_of(
        *((f"low-{n}", LOW) for n in range(99)), *((f"n-{n}", NORMAL) for n in range(99))
    )
    served = Counter[str]()
    for turn in range(160):
        fifo.push(f"high-{turn}", HIGH, 0.0)
        served[fifo.pop(0.0).split("-")[0]] += 1
    assert served == {"high": 140, "low": 10, "n": 10}
