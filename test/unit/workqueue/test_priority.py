from collections import Counter

from kruise_probe.workqueue.queue import WorkQueue
from kruise_probe.workqueue.turns import FAIR_TURN_AFTER, Priority, PriorityFifo

LOW, NORMAL, HIGH = Priority
Fifo = PriorityFifo[str]


def push(
    fifo: Fifo,
    priority: Priority,
    letter: str,
    *,
    keys: int,
) -> None:
    """Add `keys` keys that begin with a letter."""
    for number in range(keys):
        fifo.push(f"{letter}{number}", priority)


def drain(fifo: Fifo) -> list[str]:
    return [next_of(fifo) for _ in range(len(fifo))]


def next_of(fifo: Fifo) -> str:
    key = fifo.pop()
    assert key is not None
    return key


def next_letters(fifo: Fifo, count: int) -> str:
    return "".join(next_of(fifo)[0] for _ in range(count))


def test_two_lower_bands_take_turns() -> None:
    fifo = Fifo()
    push(fifo, LOW, "l", keys=99)
    push(fifo, NORMAL, "n", keys=99)
    served = Counter[str]()
    for turn in range(160):
        fifo.push(f"h{turn}", HIGH)
        served[next_of(fifo)[0]] += 1
    assert served == {"h": 140, "l": 10, "n": 10}


def by_letter(groups: str, priority: Priority = NORMAL) -> Fifo:
    """A queue whose groups are the first letters; two keys of each group wait."""
    fifo = Fifo(lambda key: key[0])
    for letter in groups:
        push(fifo, priority, letter, keys=2)
    return fifo


async def test_groups_of_one_band_take_turns_and_each_is_first_in_first_out() -> None:
    queue: WorkQueue[str] = WorkQueue(name="turns", group_of=lambda key: key[0])
    for key in ("a0", "a1", "a2", "b0", "c0", "b1"):
        queue.add(key)
    found = [(await queue.get())[0] for _ in range(6)]
    assert found == ["a0", "b0", "c0", "a1", "b1", "a2"]


def test_a_touched_key_goes_to_the_end_of_its_own_group() -> None:
    fifo = by_letter("ab", HIGH)
    fifo.push("a-late", LOW)
    fifo.touch("a-late", LOW, HIGH)
    assert drain(fifo) == ["a0", "b0", "a1", "b1", "a-late"]


def test_a_group_without_ready_keys_uses_no_memory() -> None:
    fifo = by_letter("abc")
    drain(fifo)
    assert not any(fifo._bands)


def test_lower_bands_get_every_eighth_turn() -> None:
    fifo = Fifo()
    push(fifo, HIGH, "h", keys=40)
    push(fifo, LOW, "l", keys=40)
    assert next_letters(fifo, 24) == "hhhhhhhl" * 3


def test_turns_are_counted_anew_after_a_time_without_lower_keys() -> None:
    fifo = Fifo()
    push(fifo, HIGH, "h", keys=30)
    push(fifo, LOW, "l", keys=1)
    assert next_letters(fifo, FAIR_TURN_AFTER + 1) == "h" * FAIR_TURN_AFTER + "l"
    for _ in range(3):
        fifo.push("late", LOW)
        assert next_letters(fifo, 3) == "hhh"
        fifo.discard("late", LOW)
        next_of(fifo)
