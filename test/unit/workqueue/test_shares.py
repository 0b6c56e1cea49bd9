"""Shares of the workers: a group whose reconciles are slow delays no other."""

import asyncio
from collections import Counter

import looptime
from hypothesis import given, settings
from hypothesis import strategies as st
from support.background import background
from support.cases import cases

from kruise_probe.workqueue.controller import Controller
from kruise_probe.workqueue.queue import WorkQueue

WORKERS = 48


class Slow:
    """A controller whose reconciles last as long as the key says: `<group><number>/<seconds>`."""

    def __init__(self, workers: int = WORKERS) -> None:
        self.queue: WorkQueue[str] = WorkQueue(name="slow", group_of=lambda key: key[0])
        self.workers = workers
        self.ended: dict[str, float] = {}
        self.controller = Controller(queue=self.queue, reconcile=self._reconcile, workers=workers)

    async def _reconcile(self, key: str) -> None:
        await asyncio.sleep(float(key.partition("/")[2]))
        self.ended[key] = asyncio.get_running_loop().time()

    def add(self, group: str, keys: int, seconds: float) -> None:
        for number in range(keys):
            self.queue.add(f"{group}{number}/{seconds}")

    @property
    def held(self) -> Counter[str]:
        """The workers that each group holds."""
        return Counter(key[0] for key in self.queue.processing)

    @property
    def waiting(self) -> set[str]:
        """The groups with ready keys."""
        return {key[0] for key in self.queue.dirty if key not in self.queue.processing}

    def last_end(self, group: str) -> float:
        return max(at for key, at in self.ended.items() if key[0] == group)


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
        assert sorted(Counter(round(at) for at in slow.ended.values()).values()) == [47, 47, 47]


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
    queue: WorkQueue[int] = WorkQueue(name="nodes")
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
    loop = looptime.patch_event_loop(asyncio.SelectorEventLoop(), noop_cycles=2)
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
            for seconds, group, keys, each in adds:
                await asyncio.sleep(seconds)
                slow.add(group, keys, each)
            await asyncio.sleep(16)

    loop.run_until_complete(run())
    loop.close()
    assert slow.ended.keys() == {
        f"{group}{number}/{each}" for _, group, keys, each in adds for number in range(keys)
    }
