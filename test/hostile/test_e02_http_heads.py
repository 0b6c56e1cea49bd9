"""A pod's HTTP server sends heads that are made to cost time. Other probes are not affected."""

from pathlib import Path

import pytest
from hostile.process_node import results_of_floods
from support.flood_servers import HTTP_FLOODS
from support.scripted_server import self_signed
from support.wire import Json

FOLDED_BYTES = 60 * 1024

FOLDS = b"A: b\r\n" + b" \r\n" * (FOLDED_BYTES // 3)
LARGE_HEAD = b"HTTP/1.1 200 OK\r\n" + FOLDS + b"\r\n"
LARGE_REDIRECT = b"HTTP/1.1 302 Found\r\nLocation: /\r\n" + FOLDS * 4 + b"\r\n"
ANSWERS = {
    **HTTP_FLOODS,
    "one-large-folded-head": (LARGE_HEAD, b""),
    "redirects-with-folded-heads": (LARGE_REDIRECT, b""),
}


@pytest.mark.parametrize("scheme", ["HTTP", "HTTPS"])
async def test_e2_http_floods_fail_their_own_probes_only(tmp_path: Path, scheme: str) -> None:
    tls = self_signed(tmp_path) if scheme == "HTTPS" else None
    floods: dict[str, tuple[bytes, bytes]] = {}
    for name, answer in ANSWERS.items():
        for copy in range(4):
            floods[f"{name}-{copy}"] = answer

    def probe_of(port: int) -> Json:
        return {"httpGet": {"port": port, "path": "/", "scheme": scheme}}

    results = await results_of_floods(tmp_path, floods, probe_of, tls)

    for name, (state, message) in results.items():
        succeeds = name.startswith("one-large-folded-head-")
        assert (state == "Succeeded") == succeeds, name
        assert "deadline exceeded" not in message, name
