"""Named health checks, and the text that kube's components answer with.

A check is called per request and says what is wrong, or nothing. What takes time has a deadline, so that
one check that hangs is one failed check and not a hanging endpoint.

Source: k8s.io/apiserver pkg/server/healthz/healthz.go; controller-runtime pkg/healthz/healthz.go.
Differs: reasons are not withheld, as nothing secret stands in them.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import NamedTuple

Check = Callable[[], str | Awaitable[str | None] | None]
"""Returns what is wrong, or None. An exception is what is wrong, too."""

PING = "ping"
"""The check of an endpoint that has no other, as in Go."""

CHECK_SECONDS = 2.0
"""Deadline of an asynchronous check: kubelet's own default is one second for the whole request, ours are set higher."""


class Result(NamedTuple):
    """What one check said; `problem` is None when it passed."""

    name: str
    problem: str | None
    excluded: bool = False

    def __str__(self) -> str:
        if self.problem is not None:
            return f"[-]{self.name} failed: {self.problem}"
        return f"[+]{self.name} excluded: ok" if self.excluded else f"[+]{self.name} ok"


class Report(NamedTuple):
    """What all checks of an endpoint said, and which names to exclude belong to none of them."""

    results: tuple[Result, ...]
    unmatched: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        return all(each.problem is None for each in self.results)

    def text(self, endpoint: str) -> str:
        """The listing: `[+]caches ok`, `[-]runtime failed: not connected`, and a last line that sums up."""
        lines = [str(each) for each in self.results]
        if self.unmatched:
            names = ", ".join(f'"{name}"' for name in self.unmatched)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
        verdict = "passed" if self.healthy else "failed"
        return "\n".join([*lines, f"{endpoint} check {verdict}", ""])


class Checks:
    """The checks of one endpoint, in the order in which they were added. Without any it is healthy."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}

    def add(self, name: str, check: Check) -> None:
        """Adds a check; the same name again replaces it."""
        self._checks[name] = check

    async def report(self, *, exclude: frozenset[str] = frozenset()) -> Report:
        """Runs all checks but the excluded ones, side by side; never raises because of a check."""
        async with asyncio.TaskGroup() as tasks:
            running = {
                name: tasks.create_task(_problem_of(check))
                for name, check in self._checks.items()
                if name not in exclude
            }
        results = (
            Result(name, running[name].result()) if name in running else Result(name, None, True)
            for name in self._checks
        )
        return Report(tuple(results), tuple(sorted(exclude - self._checks.keys())))

    async def report_one(self, name: str) -> Result | None:
        """Runs one check; None when there is none of that name. `ping` is there while nothing else is."""
        check = self._checks.get(name)
        if check is None:
            return Result(PING, None) if name == PING and not self._checks else None
        return Result(name, await _problem_of(check))


async def _problem_of(check: Check) -> str | None:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            said = check()
            return await said if inspect.isawaitable(said) else said
    except TimeoutError:
        return f"no answer within {CHECK_SECONDS:g} s"
    except Exception as error:  # noqa: BLE001 - a broken check is a failed check
        return f"{type(error).__name__}: {error}"


def silence_check(seconds_since_activity: Callable[[], float], *, limit_seconds: float) -> Check:
    """Fails once something that must be heard from, as a watch, has been silent for `limit_seconds`."""

    def check() -> str | None:
        silent = seconds_since_activity()
        if silent <= limit_seconds:
            return None
        return f"silent for {silent:.0f} s, at most {limit_seconds:g} s are healthy"

    return check
