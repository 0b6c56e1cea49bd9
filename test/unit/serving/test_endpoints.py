"""Health checks and their responses; one page of metrics for everybody: how often it is rendered, and that its portions make the whole."""

import asyncio
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from support.cases import cases

from kruise_probe.serving.health import CHECK_SECONDS, Check, Checks, health_handlers
from kruise_probe.serving.metrics_page import FRESH_SECONDS, MetricsHandler
from kruise_probe.wire.requests import HttpRequest

SCRAPE = HttpRequest("GET", "/metrics")


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
    request = HttpRequest("GET", path, query)
    response = await handlers[path](request)
    return response.status, response.body.decode()


async def test_the_response_has_the_format_of_kubernetes() -> None:
    checks = Checks()
    checks.add("caches", healthy)
    checks.add("runtime", broken)

    failed = "[+]caches ok\n[-]runtime failed: not connected\nreadyz check failed\n"
    assert await read("/readyz", checks) == (503, failed)
    assert await read("/healthz", checks) == (200, "ok")
    assert await read("/healthz", checks, "verbose") == (200, "healthz check passed\n")
    checks.add("runtime", healthy)
    assert await read("/readyz", checks) == (200, "ok")


@cases(
    "check problem",
    raises=(raising, "ValueError: bug"),
    asynchronous=(slow, "slow"),
    hangs=(hanging, "no result within 2 s"),
)
async def test_a_failing_check_is_one_line(check: Check, problem: str) -> None:
    checks = Checks()
    checks.add("it", check)

    assert await checks.run() == {"it": problem}


async def test_checks_that_hang_share_one_deadline(looptime: float) -> None:
    checks = Checks()
    for number in range(10):
        checks.add(f"c{number}", hanging)
    await checks.run()

    assert looptime == CHECK_SECONDS


class Counted(Collector):
    """A family of many samples; counts how often it is collected."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.collected = -1  # registering collects once

    def collect(self) -> Iterator[GaugeMetricFamily]:
        self.collected += 1
        family = GaugeMetricFamily("many", "Many samples.", labels=("number",))
        for number in range(self.samples):
            family.add_metric((str(number),), number)
        yield family


def registry_of(*collectors: Collector) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=True)
    for collector in collectors:
        registry.register(collector)
    return registry


@pytest.mark.parametrize("samples", [0, 1, 1001])
async def test_the_page_equals_that_of_the_library(samples: int) -> None:
    registry = registry_of(Counted(samples))
    Counter("some_total", "Some.", registry=registry).inc()
    Histogram("times", "Times.", registry=registry).observe(0.3)
    encode, content_type = choose_encoder("")
    page = await MetricsHandler(registry)(SCRAPE)

    assert page.body == encode(registry)
    assert page.content_type == content_type


class InPortions(Collector):
    """One family in three parts."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        for number in range(3):
            family = CounterMetricFamily("some", "Some.", labels=("number",))
            family.add_metric((str(number),), 1)
            yield family


async def test_a_family_in_portions_has_its_comments_once() -> None:
    handler = MetricsHandler(registry_of(InPortions()))
    page = await handler(SCRAPE)

    assert page.body.count(b"# TYPE some_total counter") == 1
    assert page.body.count(b"some_total{") == 3


async def test_a_page_is_rendered_at_most_once_a_second() -> None:
    counted = Counted(1)
    page = MetricsHandler(registry_of(counted))
    async with asyncio.TaskGroup() as tasks:
        for _ in range(50):
            tasks.create_task(page(SCRAPE))
    await asyncio.sleep(FRESH_SECONDS - 0.1)
    await page(SCRAPE)
    assert counted.collected == 1

    await asyncio.sleep(0.2)
    await page(SCRAPE)
    assert counted.collected == 2


async def test_rendering_yields_to_the_loop_between_portions() -> None:
    page = MetricsHandler(registry_of(InPortions()))
    steps = 0
    rendering = asyncio.create_task(page(SCRAPE))
    while not rendering.done():
        steps += 1
        await asyncio.sleep(0)

    assert steps >= 3
