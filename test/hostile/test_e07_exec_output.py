"""Commands print as much as the runtime lets them. The daemon's memory stays small, and each probe says why it has no result."""

import asyncio
from pathlib import Path

from hostile.process_node import LONGEST_GAP_SECONDS, daemon_with_victim, process_node
from support.fake_runtime import ExecCall

from kruise_probe.daemon.cri.runtime import ExecResult

ATTACK_SECONDS = 12.0
TIMEOUT_SECONDS = 5
MAX_PEAK_MB = 128
TOO_LARGE = "ExecOutputTooLarge: the command printed more than 1048576 bytes; print less"


async def test_e7_sixteen_large_outputs_stay_out_of_memory(tmp_path: Path) -> None:
    output = ExecResult(0, b"x" * (16 << 20), b"")

    async def print_much(_: ExecCall) -> ExecResult:
        return output

    async with process_node(tmp_path) as node, daemon_with_victim(node) as (daemon, victim):
        names = [f"p{number}" for number in range(16)]
        for name in names:
            node.add_probe(name, {"timeoutSeconds": TIMEOUT_SECONDS}, script=print_much)
        await node.write_spec()
        await asyncio.sleep(ATTACK_SECONDS)

        # All pods are of one namespace, so its own pods may hold all places, each for one timeout.
        await victim.assert_unaffected(
            daemon,
            "16 outputs of 16 MiB a second",
            longest_gap_seconds=TIMEOUT_SECONDS + LONGEST_GAP_SECONDS,
        )
        assert daemon.peak_mb < MAX_PEAK_MB

        def all_report_the_reason() -> bool:
            states = node.states()
            return all(states.get(name) == ("Unknown", TOO_LARGE) for name in names)

        await node.api.node_pod_probes.wait("all report the reason", all_report_the_reason)
