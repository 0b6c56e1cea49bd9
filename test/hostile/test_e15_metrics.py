"""E15: /metrics gives nothing to strangers, and strangers take nothing by asking for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler
from hostile.health import CHECK_SECONDS, HealthChecks
from support import programs
from support.api_server import ApiServer
from support.fake_runtime import ScriptedRuntime
from support.hollow import node_name
from support.programs import Program

from kruise_probe_playground.apiserver.authentication import ACCESS_REVIEWS

PROMETHEUS = "prometheus-token"
STRANGER = "stranger-token"
PRODUCT = "product-token"
TOKENS = {PROMETHEUS: "prometheus", STRANGER: "stranger", PRODUCT: "product"}
SECURE = "--metrics-secure"
REVIEWS_A_SECOND = 2 * 8 + 1
"""Of both kinds; unknown tokens are reviewed at most eight times a second."""


@web.middleware
async def only_prometheus_reads_metrics(
    request: web.Request, handler: Handler
) -> web.StreamResponse:
    """The server with RBAC: an access review allows Prometheus to read metrics, and nothing else."""
    response = await handler(request)
    if request.path != ACCESS_REVIEWS:
        return response
    review = await request.json()
    wanted = {"path": "/metrics", "verb": "get"}
    spec = review["spec"]
    allowed = (spec["user"], spec["nonResourceAttributes"]) == ("prometheus", wanted)
    return web.json_response({**review, "status": {"allowed": allowed}}, status=201)


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer(tokens=TOKENS, middlewares=[only_prometheus_reads_metrics]) as server:
        yield server


@pytest.fixture(params=["manager", "daemon"])
async def scraped(
    request: pytest.FixtureRequest, server: ApiServer, tmp_path: Path
) -> AsyncIterator[Program]:
    running = {"manager": _manager, "daemon": _daemon}[request.param]
    kubeconfig = tmp_path / "kubeconfig"
    server.write_kubeconfig(kubeconfig, token=PRODUCT)
    async with running(kubeconfig, tmp_path) as found:
        yield found


@asynccontextmanager
async def _manager(kubeconfig: Path, folder: Path) -> AsyncIterator[Program]:
    flags = (programs.ALONE, SECURE)
    async with programs.running("manager", kubeconfig, folder, *flags) as program:
        await program.ready()
        yield program


@asynccontextmanager
async def _daemon(kubeconfig: Path, folder: Path) -> AsyncIterator[Program]:
    runtime = ScriptedRuntime()
    async with programs.running_daemon(
        kubeconfig, folder, node_name(0), runtime, SECURE
    ) as program:
        await program.ready()
        yield program


async def test_e15_a_daemons_port_serves_health_and_metrics_over_tls_only(
    server: ApiServer, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    server.write_kubeconfig(kubeconfig, token=PRODUCT)
    async with _daemon(kubeconfig, tmp_path) as daemon:
        for path in ("healthz", "readyz"):
            assert (await daemon.get(path))[0] == 200
            assert (await daemon.get(path, scheme="http"))[0] == 0
        assert (await daemon.get("metrics", PROMETHEUS))[0] == 200


async def test_e15_a_flood_of_unknown_tokens_reaches_the_api_server_as_a_trickle(
    scraped: Program, server: ApiServer
) -> None:
    """And a scraper that was let in before stays so."""
    assert (await scraped.get("metrics", PROMETHEUS))[0] == 200
    loop = asyncio.get_running_loop()
    began = loop.time()
    statuses = set[int]()

    async def strange(worker: int) -> None:
        for number in range(10_000):
            if loop.time() > began + 6:
                return
            statuses.add((await scraped.get("metrics", f"{worker}-{number}"))[0])

    before = _reviews(server)
    health = HealthChecks(scraped)
    async with asyncio.TaskGroup() as tasks:
        for worker in range(20):
            tasks.create_task(strange(worker))
        while loop.time() < began + 6:
            await health.check()
            assert (await scraped.get("metrics", PROMETHEUS))[0] == 200
            await asyncio.sleep(CHECK_SECONDS)

    assert statuses <= {401, 503}
    seconds = loop.time() - began + 1
    assert _reviews(server) - before <= REVIEWS_A_SECOND * seconds


def _reviews(server: ApiServer) -> int:
    return sum(
        count
        for (call, _), count in server.faults.requests.items()
        if call in ("create tokenreviews", "create subjectaccessreviews")
    )
