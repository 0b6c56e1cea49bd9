"""A pod's gRPC server streams frames without end. Its own probe fails in time, and other probes are not affected."""

from pathlib import Path

import pytest
from hostile.process_node import results_of_floods
from support.flood_servers import GRPC_FLOODS
from support.scripted_server import self_signed
from support.wire import Json


@pytest.mark.parametrize("mode", ["", "TLS"])
async def test_e1_grpc_floods_fail_their_own_probes_only(tmp_path: Path, mode: str) -> None:
    tls = self_signed(tmp_path, protocols=("h2",)) if mode else None

    def probe_of(port: int) -> Json:
        return {"grpc": {"port": port, "mode": mode}}

    results = await results_of_floods(tmp_path, GRPC_FLOODS, probe_of, tls)

    for name, (state, message) in results.items():
        assert state == "Failed", name
        assert "timeout:" not in message, name
