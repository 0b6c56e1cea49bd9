"""E6: reviews that are huge, unfinished or never begun take neither the manager's memory nor its Lease."""

import json
from collections.abc import Callable

import aiohttp
from hostile.attacked import MANAGER_RENEWS_WITHIN, AttackedProgram, attacked_webhook
from support.cases import cases
from support.embedded_cluster import EmbeddedCluster
from support.marker_table import GOOD
from support.wire import Json

from kruise_probe.api.names import VALIDATE_MARKERS

MIB = 2**20
MAX_GROWN_MB = 48.0
"""A review of 3 MiB, decoded, and four more that wait, with room for an allocator."""
MAX_LISTED = 21
(GOOD_PROBE,) = GOOD["probes"]


async def review(webhook: AttackedProgram, spec: Json) -> tuple[int, bytes]:
    """Status and body of the response to a review of a new marker."""
    request = {
        "uid": "u",
        "operation": "CREATE",
        "name": "m",
        "object": {"metadata": {"name": "m"}, "spec": spec},
    }
    body = json.dumps({"request": request}, separators=(",", ":"))
    return await webhook.post(VALIDATE_MARKERS, body.encode())


async def assert_accepts_a_good_marker(webhook: AttackedProgram) -> None:
    status, text = await review(webhook, GOOD)
    assert status == 200
    assert json.loads(text)["response"]["allowed"] is True


def with_values(count: int) -> Json:
    expression = {
        "key": "a",
        "operator": "In",
        "values": ["!"] * count,
    }
    return {
        **GOOD,
        "selector": {"matchExpressions": [expression]},
    }


def with_annotations(pairs: dict[str, str]) -> Json:
    policy = {"state": "Succeeded", "annotations": pairs}
    return {
        **GOOD,
        "probes": [{**GOOD_PROBE, "markerPolicy": [policy]}],
    }


def with_bad_probes() -> Json:
    probes = [{**GOOD_PROBE, "name": f"a#{number}"} for number in range(15_000)]
    return {**GOOD, "probes": probes}


@cases(
    "spec",
    bad_values_of_the_selector=lambda: with_values(560_000),
    fewer_of_them=lambda: with_values(20_000),
    bad_keys=lambda: with_annotations({f"{number:x}!": "" for number in range(200_000)}),
    a_long_key=lambda: with_annotations({"k!" * 1_000_000: "v"}),
    bad_probes=with_bad_probes,
)
async def test_e6_a_huge_review_gets_a_short_answer(
    cluster: EmbeddedCluster, spec: Callable[[], Json]
) -> None:
    async with attacked_webhook(cluster) as manager:
        status, text = await review(manager, spec())

        assert status == 200
        assert len(text) < 32_768
        response = json.loads(text)["response"]
        assert response["allowed"] is False
        causes = response["status"].get("details", {}).get("causes", ())
        assert len(causes) <= MAX_LISTED
        assert manager.grown_mb < MAX_GROWN_MB
        await assert_accepts_a_good_marker(manager)


async def test_e6_a_review_larger_than_an_api_server_sends_is_refused_unread(
    cluster: EmbeddedCluster,
) -> None:
    async with attacked_webhook(cluster) as manager:
        try:
            status, _ = await review(manager, with_values(3_700_000))
        except aiohttp.ClientError:
            status = 413  # a client that goes on sending may meet the end before the answer

        assert status == 413
        assert manager.grown_mb < MAX_GROWN_MB
        assert await manager.lease_age() < MANAGER_RENEWS_WITHIN
        await assert_accepts_a_good_marker(manager)


UNFINISHED = ("unfinished", "--connections=24", f"--path={VALIDATE_MARKERS}")


@cases(
    "flood",
    unfinished_reviews_of_16_mib=(*UNFINISHED, f"--size={16 * MIB}"),
    unfinished_reviews_of_3_mib=(*UNFINISHED, f"--size={3 * MIB}"),
    connections_without_a_client_hello=("silent", "--connections=6000"),
)
async def test_e6_what_never_ends_holds_little_memory(
    cluster: EmbeddedCluster, flood: tuple[str, ...]
) -> None:
    async with attacked_webhook(cluster) as manager:
        await manager.withstands(*flood)

        assert manager.grown_mb < MAX_GROWN_MB
        await assert_accepts_a_good_marker(manager)
