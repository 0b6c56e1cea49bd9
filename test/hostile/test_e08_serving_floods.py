"""E8: strangers at the ports of /healthz and /metrics take nothing from kubelet, Prometheus or the Lease."""

from hostile.attacked import AttackedProgram, attacked_daemon, attacked_manager
from support.embedded_cluster import EmbeddedCluster

SECONDS = 12.0
MAX_GROWN_MB = 64.0
MANAGER_RENEWS_WITHIN = 8.0
"""Seconds; it does so every 2, and gives up leading after 10."""
DAEMON_RENEWS_WITHIN = 18.0
"""Every 10."""


async def _withstands_unfinished_requests(attacked: AttackedProgram, renews_within: float) -> None:
    age = await attacked.withstands("one-byte", "--connections=1000", seconds=SECONDS)
    assert age < renews_within
    assert attacked.grown_mb < MAX_GROWN_MB


async def _withstands_pipelined_scrapes(attacked: AttackedProgram, renews_within: float) -> None:
    age = await attacked.withstands(
        "pipelined", "--connections=600", "--path=/metrics", seconds=SECONDS
    )
    assert age < renews_within
    assert attacked.grown_mb < MAX_GROWN_MB


async def test_e8_unfinished_requests_at_a_daemon_block_no_health_check(
    cluster: EmbeddedCluster,
) -> None:
    async with attacked_daemon(cluster) as daemon:
        await _withstands_unfinished_requests(daemon, DAEMON_RENEWS_WITHIN)


async def test_e8_pipelined_scrapes_of_a_daemon_block_no_health_check(
    cluster: EmbeddedCluster,
) -> None:
    async with attacked_daemon(cluster) as daemon:
        await _withstands_pipelined_scrapes(daemon, DAEMON_RENEWS_WITHIN)


async def test_e8_unfinished_requests_at_a_managers_health_port_block_no_check(
    cluster: EmbeddedCluster,
) -> None:
    async with attacked_manager(cluster, attacked="/healthz") as manager:
        await _withstands_unfinished_requests(manager, MANAGER_RENEWS_WITHIN)


async def test_e8_pipelined_scrapes_of_a_manager_do_not_end_its_leadership(
    cluster: EmbeddedCluster,
) -> None:
    async with attacked_manager(cluster) as manager:
        await _withstands_pipelined_scrapes(manager, MANAGER_RENEWS_WITHIN)
