"""E8: strangers at the ports of /healthz and /metrics take nothing from kubelet, Prometheus or the Lease."""

from functools import partial
from typing import Any

from hostile.attacked import attacked_daemon, attacked_manager
from support.cases import cases
from support.embedded_cluster import EmbeddedCluster

MAX_GROWN_MB = 64.0
UNFINISHED = ("one-byte", "--connections=1000")
PIPELINED = ("pipelined", "--connections=600", "--path=/metrics")


@cases(
    "attacked flood",
    unfinished_requests_at_a_daemon=(attacked_daemon, UNFINISHED),
    pipelined_scrapes_of_a_daemon=(attacked_daemon, PIPELINED),
    unfinished_requests_at_a_managers_health_port=(
        partial(attacked_manager, attacked="/healthz"),
        UNFINISHED,
    ),
    pipelined_scrapes_of_a_manager=(attacked_manager, PIPELINED),
)
async def test_e8_a_flood_blocks_no_health_check_and_no_renewal_of_the_lease(
    cluster: EmbeddedCluster, attacked: Any, flood: tuple[str, ...]
) -> None:
    async with attacked(cluster) as program:
        await program.withstands(*flood)

        assert program.grown_mb < MAX_GROWN_MB
