"""The endpoints of a process: /healthz and /readyz with named checks, and /metrics as text.

A check is called per request and returns a problem or None. Asynchronous checks have a deadline, so a check that
hangs fails alone and does not block the endpoint. All clients of /metrics share one cached page.

Source: k8s.io/apiserver pkg/server/healthz/healthz.go; controller-runtime pkg/healthz/healthz.go; Prometheus exposition
format; promhttp.Handler.
Differs: the response contains the reasons, as they hold no secrets. Checks have no paths of their own, and none can be
excluded. No OpenMetrics. A page is cached for 1 s to 10 s, and rendering yields to the event loop after each chunk. A
node with a thousand probes has megabytes of metrics.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Metric, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from kruise_probe.serving.http_messages import HttpRequest, HttpResponse
from kruise_probe.serving.http_server import HttpHandler

# Go's client has no `_created` series; without them the metric names match and are half as many.
disable_created_metrics()  # type: ignore[no-untyped-call]

FRESH_SECONDS: Final = 1.0
"""Minimum time a rendered page is cached."""
MAX_SHARE: Final = 0.1
"""Maximum share of time spent on rendering: a slow page is cached for longer."""
MAX_FRESH_SECONDS: Final = 10.0
CHUNK_SAMPLES: Final = 500

_encode, _CONTENT_TYPE = choose_encoder("")

Check = Callable[[], str | Awaitable[str | None] | None]
"""Returns a problem or None. An exception also counts as a problem."""

CHECK_SECONDS: Final = 2.0
"""Deadline of an asynchronous check. Our manifests set probe timeouts above kubelet's default of one second."""


class Checks:
    """The checks of one endpoint, in the order they were added. Without checks it is healthy."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}

    def add(self, name: str, check: Check) -> None:
        """Add a check, or replace the one with the same name."""
        self._checks[name] = check

    async def run(self) -> dict[str, str | None]:
        """Run all checks concurrently. Return the problem of each; None if it passed. Never raises."""
        async with asyncio.TaskGroup() as group:
            running = {
                name: group.create_task(_problem_of(check)) for name, check in self._checks.items()
            }
        return {name: task.result() for name, task in running.items()}


async def _problem_of(check: Check) -> str | None:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            problem = check()
            return await problem if inspect.isawaitable(problem) else problem
    except TimeoutError:
        return f"no result within {CHECK_SECONDS:g} s"
    except Exception as error:  # noqa: BLE001 - a broken check is a failed check
        return f"{type(error).__name__}: {error}"


def health_handlers(*, health: Checks, ready: Checks) -> dict[str, HttpHandler]:
    """Return the handlers of /healthz and /readyz."""
    return {"/healthz": partial(_respond, health), "/readyz": partial(_respond, ready)}


async def _respond(checks: Checks, request: HttpRequest) -> HttpResponse:
    """Return 200 `ok`, or 503 with a line for each check, as `[-]runtime failed: not connected`. `?verbose` always lists."""
    problems = await checks.run()
    healthy = not any(problems.values())
    if healthy and "verbose" not in request.query:
        return HttpResponse.of_text("ok")
    lines = [
        f"[-]{name} failed: {why}" if why else f"[+]{name} ok" for name, why in problems.items()
    ]
    lines.append(f"{request.path[1:]} check {'passed' if healthy else 'failed'}\n")
    return HttpResponse.of_text("\n".join(lines), status=200 if healthy else 503)


class MetricsHandler:
    """Renders `registry`; concurrent clients share one page."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._registry = registry
        self._page = b""
        self._fresh_until = float("-inf")
        self._rendering = asyncio.Lock()

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        async with self._rendering:
            time = asyncio.get_running_loop().time
            began = time()
            if began >= self._fresh_until:
                self._page = await self._render()
                took = time() - began
                fresh = min(max(FRESH_SECONDS, took / MAX_SHARE), MAX_FRESH_SECONDS)
                self._fresh_until = time() + fresh
            return HttpResponse(body=self._page, content_type=_CONTENT_TYPE)

    async def _render(self) -> bytes:
        page, last_name = bytearray(), ""
        for chunk in _chunks(self._registry):
            text = _encode(chunk)
            if chunk.metric.name == last_name:  # only the first chunk of a family has the comments
                lines = text.splitlines(keepends=True)
                text = b"".join(line for line in lines if not line.startswith(b"#"))
            page += text
            last_name = chunk.metric.name
            await asyncio.sleep(0)
        return bytes(page)


class _Chunk(Collector):
    """Some samples of one metric."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self.metric


def _chunks(registry: CollectorRegistry) -> Iterator[_Chunk]:
    for family in registry.collect():
        for start in range(0, max(len(family.samples), 1), CHUNK_SAMPLES):
            metric = Metric(family.name, family.documentation, family.type, family.unit)
            metric.samples = family.samples[start : start + CHUNK_SAMPLES]
            yield _Chunk(metric)
