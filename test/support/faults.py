"""A middleware of the embedded API server that counts requests and makes them fail on demand."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from kruise_probe_playground.apiserver.failures import Failure
from kruise_probe_playground.apiserver.frontend import failure_response
from kruise_probe_playground.apiserver.handlers import verb_of
from kruise_probe_playground.apiserver.requests import parse_path


class ApiCall(NamedTuple):
    """A request; `verb` and `resource` as in roles: `patch`, `pods/status`."""

    verb: str
    resource: str
    name: str


@dataclass
class _PlannedFailure:
    verb: str
    resource: str
    failure: Failure
    times: int | None
    when: Callable[[ApiCall], bool] | None

    def matches(self, call: ApiCall) -> bool:
        return (
            self.verb in ("", call.verb)
            and self.resource in ("", call.resource)
            and (self.when is None or self.when(call))
        )


class Faults:
    """The planned failures. `requests` counts all requests by (verb, resource, code)."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self._planned: list[_PlannedFailure] = []

    def fail(
        self,
        *,
        code: int,
        reason: str = "InternalError",
        message: str = "a test made this request fail",
        verb: str = "",
        resource: str = "",
        times: int | None = 1,
        retry_after_seconds: int | None = None,
        when: Callable[[ApiCall], bool] | None = None,
    ) -> None:
        """Fail the next matching requests; all of them until `heal` with `times` None.

        An empty verb or resource matches all.
        """
        details = retry_after_seconds and {"retryAfterSeconds": retry_after_seconds}
        failure = Failure(code, reason, message, details=details or None)
        self._planned.append(_PlannedFailure(verb, resource, failure, times, when))

    def heal(self) -> None:
        """Forget all planned failures."""
        self._planned.clear()

    def count(self, *, code: int) -> int:
        """Return the number of requests with this response code."""
        return sum(number for (_, _, each), number in self.requests.items() if each == code)

    @property
    def middleware(self) -> Middleware:
        @web.middleware
        async def count_or_fail(request: web.Request, handler: Handler) -> web.StreamResponse:
            call = _call(request)
            failure = self._take_failure(call)
            response = failure_response(failure) if failure else await handler(request)
            self.requests[call.verb, call.resource, response.status] += 1
            return response

        return count_or_fail

    def _take_failure(self, call: ApiCall) -> Failure | None:
        """The failure planned for the call; it counts as one of its `times`."""
        for planned in self._planned:
            if planned.matches(call):
                if planned.times is not None:
                    planned.times -= 1
                    if not planned.times:
                        self._planned.remove(planned)
                return planned.failure
        return None


def _call(request: web.Request) -> ApiCall:
    path = parse_path(request.rel_url.raw_path)
    if path is None:
        return ApiCall("", "", "")
    try:
        verb = verb_of(request.method, path, request.query)
    except Failure:
        verb = ""
    return ApiCall(verb, path.resource, path.name)
