"""A pod's HTTP server answers with heads that are made to cost time. Nobody else sees anything."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from support.flood_servers import HTTP_FLOODS, flooding
from support.process_node import ADDRESS, daemon_with_victim, process_node
from support.scripted_server import self_signed

ATTACK_SECONDS = 8.0
TIMEOUT_SECONDS = 20
"""Far more than a flood lasts: a probe that needs this long was stopped by its timeout only."""
FOLDED_BYTES = 60 * 1024
pytestmark = pytest.mark.timeout(300)

FOLDS = b"A: b\r\n" + b" \r\n" * (FOLDED_BYTES // 3)
ANSWERS = {
    **HTTP_FLOODS,
    "one-large-folded-head": (b"HTTP/1.1 200 OK\r\n" + FOLDS + b"\r\n", b""),
    "redirects-with-folded-heads": (
        b"HTTP/1.1 302 Found\r\nLocation: /\r\n" + FOLDS * 4 + b"\r\n",
        b"",
    ),
}


@pytest.mark.parametrize("scheme", ["HTTP", "HTTPS"])
async def test_e2_http_floods_fail_their_own_probes_only(tmp_path: Path, scheme: str) -> None:
    tls = self_signed(tmp_path) if scheme == "HTTPS" else None
    with contextlib.ExitStack() as servers:
        ports = {
            f"{name}-{copy}": servers.enter_context(flooding(*answer, host=ADDRESS, tls=tls))
            for name, answer in ANSWERS.items()
            for copy in range(4)
        }
        async with process_node(tmp_path) as node, daemon_with_victim(node) as (daemon, victim):
            for name, port in ports.items():
                get = {"port": port, "path": "/", "scheme": scheme}
                node.add_probe(name, {"httpGet": get, "timeoutSeconds": TIMEOUT_SECONDS})
            await node.write_spec()
            await asyncio.sleep(ATTACK_SECONDS)

            await victim.assert_unaffected(daemon, f"{len(ports)} {scheme} floods")
            await node.until_results_of(ports)
            states = node.states()
            assert {name for name in ports if states[name][0] == "Succeeded"} == {
                f"one-large-folded-head-{copy}" for copy in range(4)
            }
            assert not [name for name in ports if "deadline exceeded" in states[name][1]]
