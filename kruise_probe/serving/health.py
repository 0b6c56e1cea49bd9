"""Named health checks, and the text that kube's components answer with.

A check is called per request and says what is wrong, or nothing. What takes time has a deadline, so that
one check that hangs is one failed check and not a hanging endpoint.

Source: k8s.io/apiserver pkg/server/healthz/healthz.go.
Differs: reasons are not withheld, as nothing secret stands in them.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import NamedTuple

Check = Callable[[], str | Awaitable[str | None] | None]
"""Returns what is wrong, or None. An exception is what is wrong, too."""

CHECK_SECONDS = 2.0
"""Deadline of an asynchronous check: kubelet's own default is one second for the whole request, ours are set higher."""


class Result(NamedTuple):
    """What one check said; `problem` is None when it passed."""

    name: str
    problem: str | None


class Report(NamedTuple):
    """What all checks of an endpoint said."""

    results: tuple[Result, ...]

    @property
    def healthy(self) -> bool:
        return all(each.problem is None for each in self.results)

    def text(self, endpoint: str) -> str:
        """The listing: `[+]caches ok`, `[-]runtime failed: not connected`, and a last line that sums up."""
        lines = [
            f"[+]{each.name} ok"
            if each.problem is None
            else f"[-]{each.name} failed: {each.problem}"
            for each in self.results
        ]
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
        names = [name for name in self._checks if name not in exclude]
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(_problem_of(self._checks[name])) for name in names]
        return Report(
            tuple(Result(name, task.result()) for name, task in zip(names, running, strict=True))
        )


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
