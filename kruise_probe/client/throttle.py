"""A token bucket: the optional client-side rate (`--rest-config-qps`, `--rest-config-burst`).

Source: client-go util/flowcontrol/throttle.go.
Differs: off unless asked for; the server's own flow control says when it is too much.
"""

import asyncio


class TokenBucket:
    """Lets `burst` requests pass at once and `qps` per second after that.

    Reservations are made in the order of calls; a waiter that is cancelled has used its turn up.
    """

    def __init__(self, *, qps: float, burst: int) -> None:
        self._interval_seconds = 1.0 / qps
        self._depth_seconds = self._interval_seconds * max(burst, 1)
        self._next_at = float("-inf")

    async def take(self) -> None:
        """Returns when this caller's turn has come."""
        now = asyncio.get_running_loop().time()
        due = max(self._next_at, now - self._depth_seconds + self._interval_seconds)
        self._next_at = due + self._interval_seconds
        if due > now:
            await asyncio.sleep(due - now)
