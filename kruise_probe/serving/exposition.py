"""/metrics: the default registry as text or OpenMetrics, with one cached page for all clients.

Source: Prometheus exposition formats; promhttp.Handler.
Differs: a page is cached for 1 s to 10 s, and rendering yields to the event loop after each chunk. A node with a
thousand probes has megabytes of metrics.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Metric, disable_created_metrics
from prometheus_client.exposition import choose_encoder

from kruise_probe.serving.http_messages import HttpRequest, HttpResponse

# Go's client has no `_created` series; without them the metric names match and are half as many.
disable_created_metrics()  # type: ignore[no-untyped-call]

FRESH_SECONDS: Final = 1.0
"""Minimum time a rendered page is cached."""
MAX_SHARE: Final = 0.1
"""Maximum share of time spent on rendering: a slow page is cached for longer."""
MAX_FRESH_SECONDS: Final = 10.0
CHUNK_SAMPLES: Final = 500

_OPENMETRICS: Final = "application/openmetrics-text"
_END: Final = b"# EOF\n"


class MetricsPage:
    """Renders one format of `registry`; concurrent clients share one page."""

    def __init__(self, accept: str, registry: CollectorRegistry = REGISTRY) -> None:
        self._encode, self.content_type = choose_encoder(accept)
        self._registry = registry
        self._body = b""
        self._fresh_until = float("-inf")
        self._rendering = asyncio.Lock()

    async def body(self) -> bytes:
        async with self._rendering:
            time = asyncio.get_running_loop().time
            began = time()
            if began >= self._fresh_until:
                self._body = await self._render()
                took = time() - began
                fresh = min(max(FRESH_SECONDS, took / MAX_SHARE), MAX_FRESH_SECONDS)
                self._fresh_until = time() + fresh
            return self._body

    async def _render(self) -> bytes:
        page, last_name = bytearray(), ""
        for chunk in _chunks(self._registry):
            text = self._encode(_SingleMetricRegistry(chunk)).removesuffix(_END)
            # Only the first chunk of a family has the comments.
            page += _without_comments(text) if chunk.name == last_name else text
            last_name = chunk.name
            await asyncio.sleep(0)
        if self.content_type.startswith(_OPENMETRICS):
            page += _END
        return bytes(page)


class MetricsHandler:
    """Serves the format that the client accepts."""

    def __init__(self) -> None:
        self._text = MetricsPage("")
        self._openmetrics = MetricsPage(f"{_OPENMETRICS};version=1.0.0")

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        openmetrics = _OPENMETRICS in request.headers.get("accept", "")
        page = self._openmetrics if openmetrics else self._text
        return HttpResponse(body=await page.body(), content_type=page.content_type)


class _SingleMetricRegistry:
    """A registry with a single metric, for the encoder."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


def _chunks(registry: CollectorRegistry) -> Iterator[Metric]:
    for family in registry.collect():
        samples = family.samples
        for start in range(0, max(len(samples), 1), CHUNK_SAMPLES):
            chunk = Metric(family.name, family.documentation, family.type, family.unit)
            chunk.samples = samples[start : start + CHUNK_SAMPLES]
            yield chunk


def _without_comments(text: bytes) -> bytes:
    lines = text.splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith(b"#"))
