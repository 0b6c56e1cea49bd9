"""Health checks and their responses."""

import asyncio

import pytest

from kruise_probe.serving.endpoints import CHECK_SECONDS, Checks, health_handlers
from kruise_probe.serving.http_messages import HttpRequest


def healthy() -> str | None:
    return None


def broken() -> str | None:
    return "not connected"


def raising() -> str | None:
    raise ValueError("bug")


async def slow() -> str | None:
    await asyncio.sleep(1)
    return "slow"


async def hanging() -> str | None:
    await asyncio.get_running_loop().create_future()
    return None


async def read(path: str, ready: Checks, query: str = "") -> tuple[int, str]:
    handlers = health_handlers(health=Checks(), ready=ready)
    response = await handlers[path](HttpRequest("GET", path, query))
    return response.status, response.body.decode()


async def test_the_response_has_the_format_of_kubernetes() -> None:
    checks = Checks()
    checks.add("caches", healthy)
    checks.add("runtime", broken)

    assert await read("/readyz", checks) == (
        503,
        "[+]caches ok\n[-]runtime failed: not connected\nreadyz check failed\n",
    )
    assert await read("/healthz", checks) == (200, "ok")
    assert await read("/healthz", checks, "verbose") == (200, "healthz check passed\n")
    checks.add("runtime", healthy)
    assert await read("/readyz", checks) == (200, "ok")


@pytest.mark.parametrize(
    ("check", "problem"),
    [
        pytest.param(raising, "ValueError: bug", id="raises"),
        pytest.param(slow, "slow", id="asynchronous"),
        pytest.param(hanging, "no result within 2 s", id="hangs"),
    ],
)
async def test_a_failing_check_is_one_line(check: object, problem: str) -> None:
    checks = Checks()
    checks.add("it", check)  # type: ignore[arg-type]  # a table of sync and async ones

    assert await checks.run() == {"it": problem}


async def test_checks_that_hang_share_one_deadline() -> None:
    checks = Checks()
    for number in range(10):
        checks.add(f"c{number}", hanging)
    begun = asyncio.get_running_loop().time()
    await checks.run()

    assert asyncio.get_running_loop().time() - begun == pytest.approx(CHECK_SECONDS)
