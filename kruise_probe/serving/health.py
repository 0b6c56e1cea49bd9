"""Named health checks, and their endpoints with the response text of Kubernetes components.

A check is called per request and returns a problem or None. Asynchronous checks have a deadline, so a check that
hangs fails alone and does not block the endpoint.

Source: k8s.io/apiserver pkg/server/healthz/healthz.go; controller-runtime pkg/healthz/healthz.go.
Differs: the response contains the reasons, as they hold no secrets.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from kruise_probe.serving.http_messages import HttpRequest, HttpResponse
from kruise_probe.serving.http_server import HttpHandler

Check = Callable[[], str | Awaitable[str | None] | None]
"""Returns a problem or None. An exception also counts as a problem."""

PING: Final = "ping"
"""The only check of an endpoint without checks, as in Go."""

CHECK_SECONDS: Final = 2.0
"""Deadline of an asynchronous check. Our manifests set probe timeouts above kubelet's default of one second."""


class CheckResult(NamedTuple):
    """Result of one check; `problem` is None if it passed."""

    name: str
    problem: str | None
    excluded: bool = False

    def __str__(self) -> str:
        if self.problem is not None:
            return f"[-]{self.name} failed: {self.problem}"
        return f"[+]{self.name} excluded: ok" if self.excluded else f"[+]{self.name} ok"


class CheckReport(NamedTuple):
    """Results of all checks of an endpoint; `unmatched` are excluded names without a check."""

    results: tuple[CheckResult, ...]
    unmatched: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        return all(each.problem is None for each in self.results)

    def text(self, endpoint: str) -> str:
        """List the checks, as `[+]caches ok` or `[-]runtime failed: not connected`, with a summary line at the end."""
        lines = [str(each) for each in self.results]
        if self.unmatched:
            names = ", ".join(f'"{name}"' for name in self.unmatched)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
        summary = "passed" if self.healthy else "failed"
        return "\n".join([*lines, f"{endpoint} check {summary}", ""])


class Checks:
    """The checks of one endpoint, in the order they were added. Without checks it is healthy."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}

    def add(self, name: str, check: Check) -> None:
        """Add a check, or replace the one with the same name."""
        self._checks[name] = check

    async def report(self, *, exclude: frozenset[str] = frozenset()) -> CheckReport:
        """Run all checks except the excluded ones concurrently; a failing check never raises."""
        async with asyncio.TaskGroup() as tasks:
            running = {
                name: tasks.create_task(_problem_of(check))
                for name, check in self._checks.items()
                if name not in exclude
            }
        results = (
            CheckResult(name, running[name].result())
            if name in running
            else CheckResult(name, None, True)
            for name in self._checks
        )
        return CheckReport(tuple(results), tuple(sorted(exclude - self._checks.keys())))

    async def report_one(self, name: str) -> CheckResult | None:
        """Run one check; None if the name is unknown. `ping` exists only while there is no other check."""
        check = self._checks.get(name)
        if check is None:
            return CheckResult(PING, None) if name == PING and not self._checks else None
        return CheckResult(name, await _problem_of(check))


async def _problem_of(check: Check) -> str | None:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            problem = check()
            return await problem if inspect.isawaitable(problem) else problem
    except TimeoutError:
        return f"no result within {CHECK_SECONDS:g} s"
    except Exception as error:  # noqa: BLE001 - a broken check is a failed check
        return f"{type(error).__name__}: {error}"


class HealthEndpoint:
    """Returns 200 `ok`, or 503 with all results. `?verbose` always lists results, `?exclude=name` skips a check.

    Each check also has its own path, such as `/readyz/runtime`: 200 `ok`, 503 with the problem, or 404.
    """

    def __init__(self, endpoint: str, checks: Checks) -> None:
        self._endpoint = endpoint
        self._checks = checks

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        name = request.path.removeprefix(f"/{self._endpoint}").removeprefix("/")
        return await (self._one(name) if name else self._all(request))

    async def _all(self, request: HttpRequest) -> HttpResponse:
        report = await self._checks.report(exclude=frozenset(request.query.get("exclude", ())))
        text = report.text(self._endpoint)
        if not report.healthy:
            return HttpResponse.of_text(text, status=503)
        return HttpResponse.of_text(text if "verbose" in request.query else "ok")

    async def _one(self, name: str) -> HttpResponse:
        result = await self._checks.report_one(name)
        if result is None:
            return HttpResponse.of_status(404)
        if result.problem is None:
            return HttpResponse.of_text("ok")
        return HttpResponse.of_text(f"{name} failed: {result.problem}\n", status=503)


def health_handlers(*, health: Checks, ready: Checks) -> dict[str, HttpHandler]:
    """Return the handlers of /healthz and /readyz, and of the paths of single checks below them."""
    healthz, readyz = HealthEndpoint("healthz", health), HealthEndpoint("readyz", ready)
    return {"/healthz": healthz, "/healthz/": healthz, "/readyz": readyz, "/readyz/": readyz}
