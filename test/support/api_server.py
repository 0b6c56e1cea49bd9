"""The embedded API server as tests use it: with the product's CRDs and rules, requests counted and failed on demand."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from kruise_probe.api.keys import NamespacedName
from kruise_probe.manifests.crds import all_crds
from kruise_probe_playground.apiserver.authentication import Tokens
from kruise_probe_playground.apiserver.custom import Validator
from kruise_probe_playground.apiserver.failures import Failure
from kruise_probe_playground.apiserver.frontend import failure_response
from kruise_probe_playground.apiserver.handlers import verb_of
from kruise_probe_playground.apiserver.requests import parse_path
from kruise_probe_playground.apiserver.schema import Json
from kruise_probe_playground.apiserver.server import EmbeddedApiServer
from kruise_probe_playground.marker_rules import MARKER_VALIDATORS

NO_TOKENS: Final[Tokens] = {}


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
        when: Callable[[ApiCall], bool] | None = None,
    ) -> None:
        """Fail the next matching requests; all of them until `heal` with `times` None.

        An empty verb or resource matches all.
        """
        failure = Failure(code, reason, message)
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


class ApiServer(EmbeddedApiServer):
    """Accepts every request by default; `faults` counts requests and makes them fail."""

    def __init__(
        self,
        *,
        crds: Iterable[Json] | None = None,
        validators: Mapping[str, Validator] = MARKER_VALIDATORS,
        tokens: Tokens = NO_TOKENS,
        middlewares: Sequence[Middleware] = (),
        **options: Any,
    ) -> None:
        self.faults = Faults()
        super().__init__(
            crds=all_crds() if crds is None else crds,
            validators=validators,
            tokens=tokens,
            middlewares=[self.faults.middleware, *middlewares],
            **options,
        )

    def objects(self, resource: str) -> list[Any]:
        """All objects of e.g. `pods` or `nodepodprobes.apps.kruise.io`."""
        kind = self.registry.kinds[resource]
        return [kind.decode(each) for each in self.registry.collection(kind).ordered()]

    def object(self, resource: str, name: str, namespace: str = "") -> Json | None:
        kind = self.registry.kinds[resource]
        stored = self.registry.collection(kind).objects.get(NamespacedName(namespace, name))
        return None if stored is None else kind.decode(stored)

    def expire(self) -> None:
        """Make every resource version and continue token so far too old (410)."""
        self.registry.store.expire()
