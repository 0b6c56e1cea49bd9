"""Commands print as much as the runtime lets them. The daemon's memory stays small, and each probe says why it has no result."""

import asyncio
from pathlib import Path

import pytest
from support.fake_runtime import ExecCall
from support.onlookers import watched_daemon
from support.process_node import process_node

from kruise_probe.daemon.cri.runtime import ExecResult

ATTACK_SECONDS = 6.0
MAX_PEAK_MB = 128
TOO_LARGE = "ExecOutputTooLarge: the command printed more than 1048576 bytes; print less"
GRACE_SECONDS = 30.0
pytestmark = pytest.mark.timeout(150)


async def test_e7_sixteen_large_outputs_stay_out_of_memory(tmp_path: Path) -> None:
    output = ExecResult(0, b"x" * (16 << 20), b"")

    async def print_much(_: ExecCall) -> ExecResult:
        return output

    async with process_node(tmp_path) as node, watched_daemon(node) as (daemon, onlookers):
        names = [f"p{number}" for number in range(16)]
        for name in names:
            node.container(name, print_much)
            node.wish(name, periodSeconds=1, timeoutSeconds=5)
        await node.ask()
        await asyncio.sleep(ATTACK_SECONDS)

        await onlookers.saw_nothing(daemon, "16 outputs of 16 MiB a second")
        assert daemon.peak_mb < MAX_PEAK_MB

        def told() -> bool:
            states = node.states()
            return all(states.get(name) == ("Unknown", TOO_LARGE) for name in names)

        await node.world.reports.wait("all say why", told, seconds=GRACE_SECONDS + 30)
