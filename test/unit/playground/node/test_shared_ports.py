"""Which ports a process serves for all pods."""

import pytest

from kruise_probe_playground.node.shared_ports import parse_table

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def line(address: str, state: str = "0A", inode: str = "77") -> str:
    return f"   0: {address} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  1000  0 {inode} 1 0 100 0 0 10 0\n"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param(line("00000000:1F90"), {"77": 8080}, id="all-addresses"),
        pytest.param(line(f"{'0' * 32}:1F90"), {"77": 8080}, id="all-ipv6-addresses"),
        pytest.param(line("01010A7F:1F90"), {}, id="one-address"),
        pytest.param(line("00000000:1F90", state="01"), {}, id="a-connection"),
        pytest.param(line(f"{'0' * 31}1:1F90"), {}, id="one-ipv6-address"),
        pytest.param("   0: 00000000", {}, id="a-cut-line"),
    ],
)
def test_listening_sockets_at_all_addresses_are_found(row: str, expected: dict[str, int]) -> None:
    assert parse_table(HEAD + row) == expected
