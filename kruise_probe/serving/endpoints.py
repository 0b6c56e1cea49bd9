"""The endpoints of a process: /healthz and /readyz with named checks, and /metrics as text; and the check for stalls.

A check is called per request and returns a problem or None. Asynchronous checks have a deadline, so a check that
hangs fails alone and does not block the endpoint. All clients of /metrics share one cached page.

A stall of this process (it was stopped, got no CPU, or one step of the event loop took too long) delays every probe and
every watch. After it, timers expire before the loop reads the data that arrived meanwhile. So a probe may time out
although its response arrived in time.

Source: k8s.io/apiserver pkg/server/healthz/healthz.go; controller-runtime pkg/healthz/healthz.go; Prometheus exposition
format; promhttp.Handler.
Differs: the response contains the reasons, as they hold no secrets. Checks have no paths of their own, and none can be
excluded. No OpenMetrics. A page is cached for 1 s to 10 s, and rendering yields to the event loop after each family. A
node with a thousand probes has megabytes of metrics, so a collector of many samples yields its families in portions.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Final

from prometheus_client import REGISTRY, CollectorRegistry, Gauge, Metric, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from kruise_probe.client.watch import READ_DEADLINE_SECONDS
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.serving.http_messages import HttpRequest, HttpResponse
from kruise_probe.serving.http_server import HttpHandler

# Go's client has no `_created` series; without them the metric names match and are half as many.
disable_created_metrics()  # type: ignore[no-untyped-call]

FRESH_SECONDS: Final = 1.0
"""Minimum time a rendered page is cached."""
MAX_SHARE: Final = 0.1
"""Maximum share of time spent on rendering: a slow page is cached for longer."""
MAX_FRESH_SECONDS: Final = 10.0

_encode, _CONTENT_TYPE = choose_encoder("")

Check = Callable[[], str | Awaitable[str | None] | None]
"""Returns a problem or None. An exception also counts as a problem."""

CHECK_SECONDS: Final = 2.0
"""Deadline of an asynchronous check. Our manifests set probe timeouts above kubelet's default of one second."""


MAX_INACTIVITY_SECONDS: Final = 2 * READ_DEADLINE_SECONDS
"""A watch without activity for this long has failed to reconnect at least once; the process is not ready."""


class Checks:
    """The checks of one endpoint, in the order they were added. Without checks it is healthy."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}

    def add(self, name: str, check: Check) -> None:
        """Add a check, or replace the one with the same name."""
        self._checks[name] = check

    def add_cache(self, informer: SharedInformer[Any]) -> None:
        """Add two checks: the cache has synced, and its watch was active in the last `MAX_INACTIVITY_SECONDS`."""

        def synced() -> str | None:
            if informer.has_synced:
                return None
            return f"not synced: {informer.last_error or 'no response yet'}"

        def active() -> str | None:
            seconds = informer.seconds_since_activity()
            if seconds <= MAX_INACTIVITY_SECONDS:
                return None
            return (
                f"no activity for {seconds:.0f} s; at most {MAX_INACTIVITY_SECONDS:g} s are healthy"
            )

        self.add(f"cache {informer.name}", synced)
        self.add(f"watch {informer.name}", active)

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
    return {
        "/healthz": partial(_respond, health),
        "/readyz": partial(_respond, ready),
    }


async def _respond(checks: Checks, request: HttpRequest) -> HttpResponse:
    """Return 200 `ok`, or 503 with a line for each check, as `[-]runtime failed: not connected`. `?verbose` always lists."""
    problems = await checks.run()
    healthy = not any(problems.values())
    if healthy and "verbose" not in request.query:
        return HttpResponse.of_text("ok")
    text = ""
    for name, problem in problems.items():
        text += f"[-]{name} failed: {problem}\n" if problem else f"[+]{name} ok\n"
    endpoint = request.path.removeprefix("/")
    if healthy:
        return HttpResponse.of_text(f"{text}{endpoint} check passed\n")
    return HttpResponse.of_text(
        f"{text}{endpoint} check failed\n",
        status=503,
    )


class MetricsHandler:
    """Renders `registry`; concurrent clients share one page. A family may be collected in consecutive portions."""

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


TICK_SECONDS: Final = 0.25
STALL_SECONDS: Final = 0.2
"""Ticks that are this late count as a stall; a busy loop is late by some milliseconds. Every stall of
`TICK_SECONDS + STALL_SECONDS` is detected."""
MEMORY_SECONDS: Final = 15.0
"""How long a delay is reported: longer than one period of a liveness probe and shorter than two. So one stall fails
one liveness probe only, and causes no restart."""
MAX_LAG_SECONDS: Final = 5.0

LAG: Final = Gauge(
    "kruise_probe_loop_lag_seconds", "The event loop's longest delay of the last 15 seconds."
)


class StallDetector:
    """Measures how late a timer fires, four times a second while `run` runs. One per process."""

    def __init__(self) -> None:
        self._stall_ended_at = float("-inf")
        self._longest_seconds = 0.0
        self._forget_at = 0.0
        self._timer: asyncio.Handle | None = None

    def stalled_since(self, at: float) -> bool:
        """Whether a stall has ended since loop time `at`."""
        return self._stall_ended_at >= at

    def check(self) -> str | None:
        """Health check that fails after a delay of more than `MAX_LAG_SECONDS`."""
        if self._longest_seconds <= MAX_LAG_SECONDS:
            return None
        return (
            f"the event loop was blocked for {self._longest_seconds:.1f} s; "
            f"at most {MAX_LAG_SECONDS:g} s are healthy"
        )

    async def run(self) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        # A callback, not a sleeping task: it must run before the tasks whose timers expired together with it.
        self._tick(loop, loop.time())
        try:
            await loop.create_future()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = loop.time()
        self._record(now - due, now)
        self._timer = loop.call_at(
            now + TICK_SECONDS,
            self._tick,
            loop,
            now + TICK_SECONDS,
        )

    def _record(self, lag_seconds: float, now: float) -> None:
        if lag_seconds >= STALL_SECONDS:
            self._stall_ended_at = now
        if lag_seconds >= self._longest_seconds or now >= self._forget_at:
            self._longest_seconds = max(lag_seconds, 0.0)
            self._forget_at = now + MEMORY_SECONDS
            LAG.set(self._longest_seconds)
