"""The optional client-side rate (`--rest-config-qps`, `--rest-config-burst`).

Source: client-go util/flowcontrol/throttle.go.
Differs: off unless configured; the server's own flow control says when it is too much.
"""

import asyncio

from kruise_probe.api.token_bucket import TokenBucket


class Throttle:
    """Lets `burst` requests pass at once and `qps` per second after that.

    Reservations are made in the order of calls; a waiter that is cancelled has used its turn up.
    """

    def __init__(self, *, qps: float, burst: int) -> None:
        self._bucket = TokenBucket(burst=max(burst, 1), interval_seconds=1.0 / qps)

    async def take(self) -> None:
        """Returns when this caller's turn has come."""
        wait = self._bucket.take(asyncio.get_running_loop().time())
        if wait > 0:
            await asyncio.sleep(wait)
