"""Integration tests run on real time, over real sockets and with real processes."""

import asyncio


def pytest_sessionstart() -> None:
    """Without a loop set, `get_event_loop` makes one up, which nobody closes; looptime calls it for each test."""
    asyncio.set_event_loop(None)
