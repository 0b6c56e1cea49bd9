"""E15: /metrics gives nothing to strangers, and strangers take nothing by asking for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from itertools import count
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
FLOOD_SECONDS = 6.0


@web.middleware
async def only_prometheus_reads_metrics(
    request: web.Request, handler: Handler
) -> web.StreamResponse:
    """The server with RBAC: an access review allows Prometheus to read metrics, and nothing else."""
    response = await handler(request)
    if request.path != ACCESS_REVIEWS:
        return response
    review = await request.json()
    spec = review["spec"]
    reads_metrics = spec["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
    allowed = reads_metrics and spec["user"] == "prometheus"
    return web.json_response({**review, "status": {"allowed": allowed}}, status=201)


async def http_status(program: Program, path: str, token: str = "", *, scheme: str = "") -> int:
    status, _ = await program.get(path, token, scheme=scheme)
    return status


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer(tokens=TOKENS, middlewares=[only_prometheus_reads_metrics]) as server:
        yield server


@pytest.fixture(params=["manager", "daemon"])
async def scraped(
    request: pytest.FixtureRequest, server: ApiServer, tmp_path: Path
) -> AsyncIterator[Program]:
    running = _manager if request.param == "manager" else _daemon
    async with running(server, tmp_path) as program:
        await program.ready()
        yield program


def _manager(server: ApiServer, folder: Path) -> AbstractAsyncContextManager[Program]:
    kubeconfig = folder / "kubeconfig"
    server.write_kubeconfig(kubeconfig, token=PRODUCT)
    return programs.running("manager", kubeconfig, folder, programs.ALONE, SECURE)


def _daemon(server: ApiServer, folder: Path) -> AbstractAsyncContextManager[Program]:
    kubeconfig = folder / "kubeconfig"
    server.write_kubeconfig(kubeconfig, token=PRODUCT)
    return programs.running_daemon(
        kubeconfig,
        folder,
        node_name(0),
        ScriptedRuntime(),
        SECURE,
    )


async def test_e15_a_daemons_port_serves_health_and_metrics_over_tls_only(
    server: ApiServer, tmp_path: Path
) -> None:
    async with _daemon(server, tmp_path) as daemon:
        await daemon.ready()
        for path in ("healthz", "readyz"):
            assert await http_status(daemon, path) == 200
            assert await http_status(daemon, path, scheme="http") == 0
        assert await http_status(daemon, "metrics", PROMETHEUS) == 200


async def test_e15_a_flood_of_unknown_tokens_reaches_the_api_server_as_a_trickle(
    scraped: Program, server: ApiServer
) -> None:
    """A scraper that had permission before keeps it."""
    assert await http_status(scraped, "metrics", PROMETHEUS) == 200
    loop = asyncio.get_running_loop()
    began = loop.time()
    ends_at = began + FLOOD_SECONDS
    numbers = count()
    statuses: set[int] = set()

    async def use_unknown_tokens() -> None:
        while loop.time() < ends_at:
            statuses.add(await http_status(scraped, "metrics", f"unknown-{next(numbers)}"))

    before = _reviews(server)
    health = HealthChecks(scraped)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(use_unknown_tokens())
        while loop.time() < ends_at:
            await health.check()
            assert await http_status(scraped, "metrics", PROMETHEUS) == 200
            await asyncio.sleep(CHECK_SECONDS)

    assert statuses <= {401, 503}
    seconds = loop.time() - began + 1
    assert _reviews(server) - before <= REVIEWS_A_SECOND * seconds


def _reviews(server: ApiServer) -> int:
    calls = ("create tokenreviews", "create subjectaccessreviews")
    return sum(times for (call, _), times in server.faults.requests.items() if call in calls)
