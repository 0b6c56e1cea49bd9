"""E8: strangers at the ports of /healthz and /metrics take nothing from kubelet, Prometheus or the Lease."""

from functools import partial
from typing import Any

from hostile.attacked import MANAGER_RENEWS_WITHIN, attacked_daemon, attacked_manager
from support.cases import cases
from support.embedded_cluster import EmbeddedCluster

MAX_GROWN_MB = 64.0
DAEMON_RENEWS_WITHIN = 9.0
"""Seconds; it does so every 3, or 6 at the latest. The flood lasts longer."""
UNFINISHED = ("one-byte", "--connections=1000")
PIPELINED = ("pipelined", "--connections=600", "--path=/metrics")


@cases(
    "attacked renews_within flood",
    unfinished_requests_at_a_daemon=(attacked_daemon, DAEMON_RENEWS_WITHIN, UNFINISHED),
    pipelined_scrapes_of_a_daemon=(attacked_daemon, DAEMON_RENEWS_WITHIN, PIPELINED),
    unfinished_requests_at_a_managers_health_port=(
        partial(attacked_manager, attacked="/healthz"), MANAGER_RENEWS_WITHIN, UNFINISHED,
    ),
    pipelined_scrapes_of_a_manager=(attacked_manager, MANAGER_RENEWS_WITHIN, PIPELINED),
)  # fmt: skip
async def test_e8_a_flood_blocks_no_health_check_and_no_renewal_of_the_lease(
    cluster: EmbeddedCluster, attacked: Any, renews_within: float, flood: tuple[str, ...]
) -> None:
    async with attacked(cluster) as program:
        await program.withstands(*flood, renews_within=renews_within)

        assert program.grown_mb < MAX_GROWN_MB
