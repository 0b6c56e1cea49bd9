"""Shares of the workers: a group whose reconciles are slow delays no other."""

import asyncio
from collections import Counter
from functools import partial

import looptime
from hypothesis import given, settings
from hypothesis import strategies as st
from support.background import background
from support.cases import cases

from kruise_probe.api.times import loop_time
from kruise_probe.workqueue.controller import Controller
from kruise_probe.workqueue.queue import WorkQueue


class Slow:
    """A controller whose reconciles last as long as the key says: `<group><number>/<seconds>`."""

    def __init__(self, workers: int = 48) -> None:
        self.queue = WorkQueue[str](name="slow", group_of=lambda key: key[0])
        self.added: set[str] = set()
        self.ended: dict[str, float] = {}
        self.controller = Controller(queue=self.queue, reconcile=self._reconcile, workers=workers)

    async def _reconcile(self, key: str) -> None:
        _, _, seconds = key.partition("/")
        await asyncio.sleep(float(seconds))
        self.ended[key] = loop_time()

    def add(self, group: str, keys: int, seconds: float) -> None:
        for number in range(keys):
            key = f"{group}{number}/{seconds}"
            self.added.add(key)
            self.queue.add(key)

    @property
    def held(self) -> Counter[str]:
        """The workers that each group holds."""
        return Counter(key[0] for key in self.queue.processing)

    @property
    def waiting(self) -> set[str]:
        """The groups with ready keys."""
        return {key[0] for key in self.queue.dirty if key not in self.queue.processing}

    def last_end(self, group: str) -> float:
        return max(ended for key, ended in self.ended.items() if key[0] == group)


@cases("seconds", webhook=10.0, longest_webhook=30.0)
async def test_writes_that_a_webhook_holds_delay_no_other_namespace(seconds: float) -> None:
    slow = Slow()
    async with background(slow.controller.run()):
        slow.add("a", 150, seconds)
        await asyncio.sleep(1)
        slow.add("b", 10, 0.02)
        await asyncio.sleep(0.5)
        assert slow.last_end("b") < 1.25


async def test_a_group_alone_holds_all_workers_but_one() -> None:
    slow = Slow()
    async with background(slow.controller.run()):
        slow.add("a", 150, 10.0)
        await asyncio.sleep(35)
        assert slow.held == {"a": 9}
        ended_together = Counter(round(ended) for ended in slow.ended.values())
        assert list(ended_together.values()) == [47, 47, 47]


async def test_groups_that_are_all_slow_hold_equal_shares() -> None:
    slow = Slow()
    async with background(slow.controller.run()):
        slow.add("a", 200, 10.0)
        await asyncio.sleep(1)
        slow.add("b", 200, 10.0)
        slow.add("c", 200, 10.0)
        await asyncio.sleep(10.5)
        assert sorted(slow.held.values()) == [15, 16, 16]


async def test_a_queue_of_one_group_uses_all_workers() -> None:
    queue = WorkQueue[int](name="nodes")
    controller = Controller(queue=queue, reconcile=lambda _: asyncio.sleep(1), workers=4)
    async with background(controller.run()):
        for key in range(9):
            queue.add(key)
        await asyncio.sleep(0.5)
        assert len(queue.processing) == 4


added = st.tuples(
    st.sampled_from([0.0, 0.1, 0.5]),
    st.sampled_from("abcd"),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.1, 0.3]),
)
"""Seconds since the one before, a group, how many keys it adds, and how long each is reconciled."""


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5), st.lists(added, max_size=12))
def test_no_worker_idles_while_it_may_take_a_key(
    workers: int, adds: list[tuple[float, str, int, float]]
) -> None:
    """The last free worker waits for a group that holds none. In the end every key was reconciled."""
    slow = Slow(workers)

    async def look() -> None:
        await asyncio.sleep(0.05)  # All else happens at tenths of a second.
        while True:
            await asyncio.sleep(0.1)
            idle = workers - len(slow.queue.processing)
            assert idle < 2 or not slow.waiting
            assert idle == 0 or all(slow.held[group] for group in slow.waiting)

    async def run() -> None:
        async with background(slow.controller.run()), background(look()):
            for pause, group, keys, seconds in adds:
                await asyncio.sleep(pause)
                slow.add(group, keys, seconds)
            await asyncio.sleep(16)

    with asyncio.Runner(loop_factory=partial(looptime.new_event_loop, noop_cycles=2)) as runner:
        runner.run(run())
    assert slow.ended.keys() == slow.added
