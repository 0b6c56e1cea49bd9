"""A process whose tasks ignore cancellation; a real process on real time."""

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
            print("ignored", flush=True)

process.GRACE_SECONDS = 0.2
process.run_until_signalled(main())
"""


def test_c13_process_exits_after_the_grace_period_if_tasks_hang() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0
            assert "ignored" in process.stdout.read()
        finally:
            process.kill()
    assert GRACE_SECONDS < 5, "the documented limit"
