"""The end of a process whose work does not end: in a process of its own, on real time."""

import signal
import subprocess
import sys

from kruise_probe.cli.process import GRACE_SECONDS

STUBBORN = """
import asyncio
from kruise_probe.cli import process

async def main():
    print("ready", flush=True)
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            print("does not care", flush=True)

process.GRACE_SECONDS = 0.2
process.run_until_signalled(main())
"""


def test_c13_work_that_does_not_end_is_left_behind_after_the_grace() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0
            assert "does not care" in process.stdout.read()
        finally:
            process.kill()
    assert GRACE_SECONDS < 5, "what users are promised"
