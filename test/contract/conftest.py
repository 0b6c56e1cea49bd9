import asyncio


def pytest_sessionstart() -> None:
    """Set no loop: otherwise `get_event_loop`, which looptime calls for each test, creates one that is never closed."""
    asyncio.set_event_loop(None)
