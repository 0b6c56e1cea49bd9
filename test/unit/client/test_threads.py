"""Blocking calls in daemon threads."""

import subprocess
import sys
from pathlib import Path

import pytest

GIVES_UP = """
import asyncio, threading
from kruise_probe.client.credentials import run_in_daemon_thread

async def main():
    try:
        async with asyncio.timeout(0):
            await run_in_daemon_thread(go_on.wait)
    except TimeoutError:
        print("given up")

go_on = threading.Event()
asyncio.run(main())
"""
AND_IT_ENDS_LATER = """
(thread,) = [each for each in threading.enumerate() if each.daemon]
go_on.set()
thread.join()
"""


@pytest.mark.parametrize("then", ["", AND_IT_ENDS_LATER], ids=["hangs", "ends-after-the-loop"])
def test_process_exits_without_waiting_for_the_thread(then: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GIVES_UP + then],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
        timeout=30,
    )

    assert (done.stdout, done.stderr) == ("given up\n", "")
