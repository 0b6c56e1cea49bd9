"""The work queue against a model of its contract, under any sequence of calls.

- A key is never handed out while it is being processed.
- A key that was added is handed out eventually. A key that was added during processing is handed out again.
- A key that was not added is never handed out.
- Of several delays the earliest is kept, and none ends early.
- A key is handed out with the highest priority that was requested since it was last handed out.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import looptime
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kruise_probe.workqueue import retries
from kruise_probe.workqueue.queue import WorkQueue
from kruise_probe.workqueue.turns import Priority

keys = st.sampled_from("abcde")
priorities = st.sampled_from(Priority)
delays = st.integers(min_value=-1, max_value=8)


class WorkQueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=partial(looptime.new_event_loop, noop_cycles=2))
        self.delays = pytest.MonkeyPatch()
        self.delays.setattr(retries, "BASE_DELAY_SECONDS", 1.0)
        self.delays.setattr(retries, "MAX_DELAY_SECONDS", 4.0)
        self.queue: WorkQueue[str] = WorkQueue(name="model")
        self.now = 0
        self.wanted: dict[str, Priority] = {}
        self.processing: set[str] = set()
        self.delayed: dict[str, tuple[int, Priority]] = {}
        self.failures: dict[str, int] = {}

    def teardown(self) -> None:
        self.delays.undo()
        self.runner.close()

    def call(self, work: Callable[..., None], *args: Any) -> None:
        """Call `work` in the loop, as the queue requires."""

        async def called() -> None:
            work(*args)

        self.runner.run(called())

    @rule(key=keys, priority=priorities)
    def add(self, key: str, priority: Priority) -> None:
        self.call(self.queue.add, key, priority)
        self.want(key, priority)

    @rule(key=keys, seconds=delays, priority=priorities)
    def add_after(self, key: str, seconds: int, priority: Priority) -> None:
        self.call(
            self.queue.add_after,
            key,
            seconds,
            priority,
        )
        self.delay(key, seconds, priority)

    @rule(key=keys, priority=priorities)
    def add_rate_limited(self, key: str, priority: Priority) -> None:
        self.call(self.queue.add_rate_limited, key, priority)
        failures = self.failures.get(key, 0)
        self.failures[key] = failures + 1
        self.delay(key, min(4, 2**failures), priority)

    @rule(key=keys)
    def forget(self, key: str) -> None:
        self.queue.forget(key)
        self.failures.pop(key, None)

    @precondition(lambda self: self.ready())
    @rule()
    def get(self) -> None:
        key, priority = self.runner.run(self.queue.get())
        assert key in self.ready()
        assert priority == self.wanted.pop(key)
        self.processing.add(key)

    @precondition(lambda self: self.processing)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.processing)))
        self.call(self.queue.done, key)
        self.processing.remove(key)

    @rule(seconds=st.integers(min_value=1, max_value=5))
    def time_passes(self, seconds: int) -> None:
        # Half a second off, so that what ends now has ended.
        self.now += seconds
        left = self.now + 0.5 - self.runner.get_loop().time()
        self.runner.run(asyncio.sleep(left))
        for key, (ready_at, priority) in list(self.delayed.items()):
            if ready_at <= self.now:
                del self.delayed[key]
                self.want(key, priority)

    @invariant()
    def hands_out_what_is_wanted_and_not_processed(self) -> None:
        assert len(self.queue) == len(self.ready())

    @invariant()
    def keeps_one_delay_per_key(self) -> None:
        assert len(self.queue.delayed) == len(self.delayed)

    @invariant()
    def counts_failures(self) -> None:
        assert all(self.queue.num_requeues(key) == self.failures.get(key, 0) for key in "abcde")

    def ready(self) -> set[str]:
        return set(self.wanted) - self.processing

    def want(self, key: str, priority: Priority) -> None:
        self.wanted[key] = max(priority, self.wanted.get(key, priority))

    def delay(self, key: str, seconds: int, priority: Priority) -> None:
        if seconds <= 0:
            self.want(key, priority)
            return
        # Calls come within the half second after `now`; a delay from there ends within the same.
        ready_at = self.now + seconds
        before, waiting = self.delayed.get(key, (ready_at, priority))
        self.delayed[key] = (min(before, ready_at), max(priority, waiting))


TestWorkQueueMachine = WorkQueueMachine.TestCase
TestWorkQueueMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
