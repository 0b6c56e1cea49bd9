"""A call that blocks keeps no process alive."""

from support.cases import cases
from support.pages import ROOT
from support.shell import python

GIVES_UP = """
import asyncio, threading
from kruise_probe.blocking import run_blocking

async def main():
    try:
        async with asyncio.timeout(0):
            await run_blocking(go_on.wait)
    except TimeoutError:
        print("given up")

go_on = threading.Event()
asyncio.run(main())
"""
AND_IT_ENDS_LATER = """
(daemon,) = [thread for thread in threading.enumerate() if thread.daemon]
go_on.set()
daemon.join()
"""


@cases("then", hangs="", ends_after_the_loop=AND_IT_ENDS_LATER)
def test_process_exits_without_waiting_for_the_thread(then: str) -> None:
    done = python("-c", GIVES_UP + then, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "given up\n", "")
