"""The optional client-side rate limit (`--rest-config-qps`, `--rest-config-burst`).

Source: client-go util/flowcontrol/throttle.go.
Differs: off by default, because the server has its own flow control.
"""

import asyncio

from kruise_probe.api.token_bucket import TokenBucket


class Throttle:
    """Allows `burst` requests at once, then `qps` per second.

    Tokens are reserved in the order of calls. A cancelled `take` does not return its token.
    """

    def __init__(self, *, qps: float, burst: int) -> None:
        self._bucket = TokenBucket(burst=max(burst, 1), interval_seconds=1.0 / qps)

    async def take(self) -> None:
        """Take a token, and wait until it is available."""
        wait = self._bucket.take(asyncio.get_running_loop().time())
        if wait > 0:
            await asyncio.sleep(wait)
