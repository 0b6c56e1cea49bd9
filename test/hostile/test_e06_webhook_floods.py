"""E6: reviews that are huge, unfinished or never begun take neither the manager's memory nor its Lease."""

import json
import ssl
from collections.abc import Callable
from io import BytesIO

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


def unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def post(attacked: AttackedProgram, body: bytes) -> tuple[int, bytes]:
    """One review; status and answer."""
    url = f"https://127.0.0.1:{attacked.port}{VALIDATE_MARKERS}"
    limit = aiohttp.ClientTimeout(total=30)
    async with (
        aiohttp.ClientSession(timeout=limit) as session,
        session.post(url, data=BytesIO(body), ssl=unverified()) as response,
    ):
        return response.status, await response.read()


def review(spec: Json) -> bytes:
    marker = {"metadata": {"name": "m"}, "spec": spec}
    request = {"uid": "u", "operation": "CREATE", "name": "m", "object": marker}
    return json.dumps({"request": request}, separators=(",", ":")).encode()


def with_annotations(pairs: dict[str, str]) -> Json:
    policy = {"state": "Succeeded", "annotations": pairs}
    return {**GOOD, "probes": [{**GOOD["probes"][0], "markerPolicy": [policy]}]}


def with_values(count: int, value: str) -> Json:
    expression = {"key": "a", "operator": "In", "values": [value] * count}
    return {**GOOD, "selector": {"matchExpressions": [expression]}}


async def is_judged_as_ever(attacked: AttackedProgram) -> bool:
    status, text = await post(attacked, review(GOOD))
    return status == 200 and json.loads(text)["response"]["allowed"] is True


@cases(
    "spec",
    bad_values_of_the_selector=lambda: with_values(560_000, "!"),
    fewer_of_them=lambda: with_values(20_000, "!"),
    bad_keys=lambda: with_annotations({f"{i:x}!": "" for i in range(200_000)}),
    a_long_key=lambda: with_annotations({"k!" * 1_000_000: "v"}),
    bad_probes=lambda: {
        **GOOD,
        "probes": [{**GOOD["probes"][0], "name": f"a#{i}"} for i in range(15_000)],
    },
)
async def test_e6_a_huge_review_gets_a_short_answer(
    cluster: EmbeddedCluster, spec: Callable[[], Json]
) -> None:
    async with attacked_webhook(cluster) as manager:
        status, text = await post(manager, review(spec()))

        assert status == 200
        assert len(text) < 32_768
        response = json.loads(text)["response"]
        assert response["allowed"] is False
        assert len(response["status"].get("details", {}).get("causes", ())) <= MAX_LISTED
        assert manager.grown_mb < MAX_GROWN_MB
        assert await is_judged_as_ever(manager)


async def test_e6_a_review_larger_than_an_api_server_sends_is_refused_unread(
    cluster: EmbeddedCluster,
) -> None:
    async with attacked_webhook(cluster) as manager:
        try:
            status, _ = await post(manager, review(with_values(3_700_000, "!")))
        except aiohttp.ClientError:
            status = 413  # a client that goes on sending may meet the end before the answer

        assert status == 413
        assert manager.grown_mb < MAX_GROWN_MB
        assert await manager.lease_age() < MANAGER_RENEWS_WITHIN
        assert await is_judged_as_ever(manager)


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
        assert await is_judged_as_ever(manager)
