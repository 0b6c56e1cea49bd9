"""A rate that groups of keys share: the keys that wait for a token take turns by group."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from kruise_probe.api.times import CLOCK_SLACK_SECONDS, loop_time
from kruise_probe.api.token_bucket import TokenBucket
from kruise_probe.workqueue.turns import GroupOf, Priority, Turns, every_group

K = TypeVar("K", bound=Hashable)


class TokenTurns(Generic[K]):
    """Keys that wait for a token. With G groups waiting, the first key of one waits for at most G tokens.

    Args:
        go: gets each key that had to wait, at its turn.
        burst: tokens at once; then one per `interval_seconds`.
    """

    def __init__(
        self,
        group_of: GroupOf[K],
        go: Callable[[K, Priority], None],
        *,
        burst: int,
        interval_seconds: float,
    ) -> None:
        self._group_of = group_of
        self._go = go
        self._tokens = TokenBucket(burst=burst, interval_seconds=interval_seconds)
        self._waiting: Turns[K, Priority] = Turns()

    def take(self, key: K, priority: Priority) -> bool:
        """Whether there is a token for the key now. Otherwise it waits; a key that waits already keeps its turn."""
        now = loop_time()
        wait = self._tokens.wait_seconds(now)
        if not self._waiting and wait <= CLOCK_SLACK_SECONDS:
            self._tokens.take(now)
            return True
        group = self._group_of(key)
        waiting = self._waiting.get(group)
        if waiting is not None and key in waiting:
            waiting[key] = max(priority, waiting[key])
            return False
        if not self._waiting:
            asyncio.get_running_loop().call_later(wait, self._release)
        self._waiting.push(group, key, priority)
        return False

    def _release(self) -> None:
        """Let as many keys go as there are tokens; call it again when there is one for the next."""
        now = loop_time()
        while self._waiting:
            wait = self._tokens.wait_seconds(now)
            if wait > CLOCK_SLACK_SECONDS:
                asyncio.get_running_loop().call_later(wait, self._release)
                return
            self._tokens.take(now)
            group = self._waiting.next_group(every_group)
            key, priority = self._waiting.pop_first(group)
            self._go(key, priority)
