"""The endpoint /metrics: a page of text that all clients share.

Source: Prometheus exposition format; promhttp.Handler.
Differs: no OpenMetrics. A page is cached for 1 s to 10 s, and rendering yields to the event loop after each family. A
node with a thousand probes has megabytes of metrics, so a collector of many samples yields its families in portions.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Metric, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from kruise_probe.api.times import loop_time
from kruise_probe.wire.requests import HttpRequest, HttpResponse

# Go's client has no `_created` series; without them the metric names match and are half as many.
disable_created_metrics()  # type: ignore[no-untyped-call]

FRESH_SECONDS: Final = 1.0
"""Minimum time a rendered page is cached."""
MAX_SHARE: Final = 0.1
"""Maximum share of time spent on rendering: a slow page is cached for longer."""
MAX_FRESH_SECONDS: Final = 10.0

_encode, _CONTENT_TYPE = choose_encoder("")


class MetricsHandler:
    """Renders `registry`; concurrent clients share one page. A family may be collected in consecutive portions."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._registry = registry
        self._page = b""
        self._fresh_until = float("-inf")
        self._rendering = asyncio.Lock()

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        async with self._rendering:
            began = loop_time()
            if began >= self._fresh_until:
                self._page = await self._render()
                took = loop_time() - began
                fresh = min(max(FRESH_SECONDS, took / MAX_SHARE), MAX_FRESH_SECONDS)
                self._fresh_until = loop_time() + fresh
            return HttpResponse(body=self._page, content_type=_CONTENT_TYPE)

    async def _render(self) -> bytes:
        page = bytearray()
        last_name = ""
        for family in self._registry.collect():
            text = _encode(_Single(family))
            if family.name == last_name:  # only the first portion of a family has the comments
                lines = text.splitlines(keepends=True)
                text = b"".join(line for line in lines if not line.startswith(b"#"))
            page += text
            last_name = family.name
            await asyncio.sleep(0)
        return bytes(page)


class _Single(Collector):
    """One family, or a portion of it."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family
