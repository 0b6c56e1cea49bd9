from collections import Counter

from kruise_probe.workqueue.queue import WorkQueue
from kruise_probe.workqueue.turns import (
    FAIR_TURN_AFTER,
    Priority,
    PriorityFifo,
)

LOW, NORMAL, HIGH = Priority


def fifo_of(*keys: tuple[str, Priority]) -> PriorityFifo[str]:
    fifo: PriorityFifo[str] = PriorityFifo()
    for key, priority in keys:
        fifo.push(key, priority)
    return fifo


def drain(fifo: PriorityFifo[str]) -> list[str]:
    return [next_of(fifo) for _ in range(len(fifo))]


def next_of(fifo: PriorityFifo[str]) -> str:
    key = fifo.pop()
    assert key is not None
    return key


def test_two_lower_bands_take_turns() -> None:
    fifo = fifo_of(
        *((f"low-{n}", LOW) for n in range(99)), *((f"n-{n}", NORMAL) for n in range(99))
    )
    served = Counter[str]()
    for turn in range(160):
        fifo.push(f"high-{turn}", HIGH)
        served[next_of(fifo).split("-")[0]] += 1
    assert served == {"high": 140, "low": 10, "n": 10}


def by_letter(*, keys: int, groups: str, priority: Priority = NORMAL) -> PriorityFifo[str]:
    """A queue whose groups are the first letters; `keys` of each group wait."""
    fifo: PriorityFifo[str] = PriorityFifo(lambda key: key[0])
    for group in groups:
        for number in range(keys):
            fifo.push(f"{group}{number}", priority)
    return fifo


async def test_groups_of_one_band_take_turns_and_each_is_first_in_first_out() -> None:
    queue: WorkQueue[str] = WorkQueue(name="turns", group_of=lambda key: key[0])
    for key in ("a0", "a1", "a2", "b0", "c0", "b1"):
        queue.add(key)
    found = [(await queue.get())[0] for _ in range(6)]
    assert found == ["a0", "b0", "c0", "a1", "b1", "a2"]


def test_a_touched_key_goes_to_the_end_of_its_own_group() -> None:
    fifo = by_letter(keys=2, groups="ab", priority=HIGH)
    fifo.push("a-late", LOW)
    fifo.touch("a-late", LOW, HIGH)
    assert drain(fifo) == ["a0", "b0", "a1", "b1", "a-late"]


def test_a_group_without_ready_keys_uses_no_memory() -> None:
    fifo = by_letter(keys=2, groups="abc")
    drain(fifo)
    assert [len(band) for band in fifo._bands] == [0, 0, 0]


def test_lower_bands_get_every_eighth_turn() -> None:
    high = [(f"high-{number}", HIGH) for number in range(40)]
    low = [(f"low-{number}", LOW) for number in range(40)]
    assert "".join(key[0] for key in drain(fifo_of(*high, *low))[:24]) == "hhhhhhhl" * 3


def test_turns_are_counted_anew_after_a_time_without_lower_keys() -> None:
    fifo = fifo_of(*((f"high-{n}", HIGH) for n in range(30)), ("low-a", LOW))
    for _ in range(FAIR_TURN_AFTER - 1):
        assert next_of(fifo).startswith("high")
    assert [next_of(fifo)[:3] for _ in range(2)] == ["hig", "low"]
    for _ in range(3):
        fifo.push("low-b", LOW)
        assert [next_of(fifo)[:3] for _ in range(3)] == ["hig"] * 3
        fifo._bands[LOW].take(fifo._group_of("low-b"), "low-b")
        next_of(fifo)
