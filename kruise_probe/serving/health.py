"""The endpoints /healthz and /readyz with named checks.

A check is called per request and returns a problem or None. Asynchronous checks have a deadline, so a check that
hangs fails alone and does not block the endpoint.

Source: k8s.io/apiserver pkg/server/healthz/healthz.go; controller-runtime pkg/healthz/healthz.go.
Differs: the response contains the reasons, as they hold no secrets. Checks have no paths of their own, and none can be
excluded.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from kruise_probe.client.watch import READ_DEADLINE_SECONDS
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.serving.http_server import HttpHandler
from kruise_probe.wire.requests import HttpRequest, HttpResponse

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
