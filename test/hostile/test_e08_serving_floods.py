"""E8: strangers at the ports of /healthz and /metrics take nothing from kubelet, Prometheus or the Lease."""

from support.arena import Arena
from support.besieged import Besieged, besieged_daemon, besieged_manager

SECONDS = 12.0
MAX_GROWN_MB = 64.0
MANAGER_RENEWS_WITHIN = 8.0
"""Seconds; it does so every 2, and gives up leading after 10."""
DAEMON_RENEWS_WITHIN = 18.0
"""Every 10."""


async def _withstands_unfinished_requests(besieged: Besieged, renews_within: float) -> None:
    age = await besieged.withstands("one-byte", "--connections=1000", seconds=SECONDS)
    assert age < renews_within
    assert besieged.grown_mb < MAX_GROWN_MB


async def _withstands_pipelined_scrapes(besieged: Besieged, renews_within: float) -> None:
    age = await besieged.withstands(
        "pipelined", "--connections=600", "--path=/metrics", seconds=SECONDS
    )
    assert age < renews_within
    assert besieged.grown_mb < MAX_GROWN_MB


async def test_e8_unfinished_requests_at_a_daemon_block_no_health_check(arena: Arena) -> None:
    async with besieged_daemon(arena) as daemon:
        await _withstands_unfinished_requests(daemon, DAEMON_RENEWS_WITHIN)


async def test_e8_pipelined_scrapes_of_a_daemon_block_no_health_check(arena: Arena) -> None:
    async with besieged_daemon(arena) as daemon:
        await _withstands_pipelined_scrapes(daemon, DAEMON_RENEWS_WITHIN)


async def test_e8_unfinished_requests_at_a_managers_health_port_block_no_check(
    arena: Arena,
) -> None:
    async with besieged_manager(arena, attacked="/healthz") as manager:
        await _withstands_unfinished_requests(manager, MANAGER_RENEWS_WITHIN)


async def test_e8_pipelined_scrapes_of_a_manager_do_not_end_its_leadership(arena: Arena) -> None:
    async with besieged_manager(arena) as manager:
        await _withstands_pipelined_scrapes(manager, MANAGER_RENEWS_WITHIN)
