"""A pod's gRPC server streams frames without end. Its own probe fails in time, and other probes are not affected."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from support.flood_servers import GRPC_FLOODS, flooding
from support.process_node import ADDRESS, daemon_with_victim, process_node
from support.scripted_server import self_signed

ATTACK_SECONDS = 8.0
TIMEOUT_SECONDS = 20
"""Far more than a flood lasts: a probe that needs this long was stopped by its timeout only."""
pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("mode", ["", "TLS"])
async def test_e1_grpc_floods_fail_their_own_probes_only(tmp_path: Path, mode: str) -> None:
    tls = self_signed(tmp_path, protocols=("h2",)) if mode else None
    with contextlib.ExitStack() as servers:
        ports = {
            name: servers.enter_context(flooding(*flood, host=ADDRESS, tls=tls))
            for name, flood in GRPC_FLOODS.items()
        }
        async with process_node(tmp_path) as node, daemon_with_victim(node) as (daemon, victim):
            for name, port in ports.items():
                grpc = {"port": port, **({"mode": mode} if mode else {})}
                node.add_probe(name, {"grpc": grpc, "timeoutSeconds": TIMEOUT_SECONDS})
            await node.write_spec()
            await asyncio.sleep(ATTACK_SECONDS)

            await victim.assert_unaffected(daemon, f"{len(ports)} gRPC floods {mode}")
            await node.until_results_of(ports)
            states = node.states()
            assert {name: states[name][0] for name in ports} == dict.fromkeys(ports, "Failed")
            assert not [name for name in ports if "timeout:" in states[name][1]]
