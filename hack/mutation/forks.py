"""Runs work in a fork with limits on processor time and memory."""

import ctypes
import math
import os
import resource
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

KILLED, SURVIVED, TIME_LIMIT, NOT_APPLIED = 1, 0, 70, 71
"""Results of a fork. TIME_LIMIT counts as killed. NOT_APPLIED: the code of a function could not be replaced."""

IDLE_SECONDS, BUSY_SECONDS = 12.0, 0.02
"""A fork that uses less than BUSY_SECONDS of processor time in IDLE_SECONDS hangs. Tests of sockets wait for a few seconds."""
MEMORY_BYTES = 6 << 30
"""Of address space, which is larger than the memory in use."""

_PR_SET_PDEATHSIG = 1


def run_in_fork(work: Callable[[], int], seconds: int) -> int:
    """Run `work` in a fork, without output, for at most `seconds` of processor time; return its result."""
    return _wait_for(_fork(work, seconds))


def limit_processor_time(seconds: int) -> None:
    """End this fork if it uses more than `seconds` of processor time from now on.

    Called before each test, so that an endless loop takes the time of one test and not of all.
    """
    _, all_tests = resource.getrlimit(resource.RLIMIT_CPU)
    until = math.ceil(time.process_time()) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (min(until, all_tests), all_tests))


def _fork(work: Callable[[], int], seconds: int) -> int:
    if process := os.fork():
        return process
    code = KILLED
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        code = work()
    finally:
        os._exit(code)


def _wait_for(process: int) -> int:
    """Wait for a fork, and end it if it is idle. The kernel ends one that is busy for too long."""
    descriptor = os.pidfd_open(process)
    used = -1.0
    while not select.select([descriptor], [], [], IDLE_SECONDS)[0]:
        before, used = used, _processor_seconds(process)
        if used - before < BUSY_SECONDS:
            os.killpg(process, signal.SIGKILL)
            break
    os.close(descriptor)
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    if code in (SURVIVED, NOT_APPLIED):
        return code
    return TIME_LIMIT if code in (-signal.SIGKILL, -signal.SIGXCPU) else KILLED


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
