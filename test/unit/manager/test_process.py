"""A process whose tasks ignore cancellation; a real process on real time."""

import signal
import subprocess
import sys

import pytest

from kruise_probe.manager.process import GRACE_SECONDS

STUBBORN = """
import asyncio
from kruise_probe.manager import process

async def main():
    print("ready", flush=True)
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            print("ignored", flush=True)

process.GRACE_SECONDS = 0.2
process.run_until_signalled(main(), program="test")
"""


SIGNALLED_TWICE = """
import asyncio
from kruise_probe.manager.process import run_until_signalled

async def main():
    print("ready", flush=True)
    try:
        await asyncio.sleep(3600)
    finally:
        print("releasing", flush=True)
        await asyncio.to_thread(input)
        print("released", flush=True)

run_until_signalled(main(), program="test")
"""


@pytest.mark.parametrize(
    ("second", "code", "rest"),
    [
        pytest.param(signal.SIGTERM, 0, "released", id="sigterm"),
        pytest.param(signal.SIGINT, 128 + signal.SIGINT, "", id="sigint"),
    ],
)
def test_only_a_second_sigint_interrupts_the_release(
    second: signal.Signals, code: int, rest: str
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SIGNALLED_TWICE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdin
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGTERM)
            while process.stdout.readline() != "releasing\n":
                pass
            process.send_signal(second)
            if second is signal.SIGTERM:
                process.stdin.write("go on\n")
                process.stdin.flush()
            assert process.wait(timeout=20) == code
            assert rest in process.stdout.read()
        finally:
            process.kill()


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
