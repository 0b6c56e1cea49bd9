"""The embedded API server as tests use it: with the product's CRDs and rules, requests counted and failed on demand."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from kruise_probe.api.meta import NamespacedName
from kruise_probe.manifests.crds import all_crds
from kruise_probe_playground.apiserver.authentication import Tokens
from kruise_probe_playground.apiserver.custom import Validator
from kruise_probe_playground.apiserver.failures import Failure
from kruise_probe_playground.apiserver.frontend import failure_response
from kruise_probe_playground.apiserver.handlers import verb_of
from kruise_probe_playground.apiserver.requests import parse_path
from kruise_probe_playground.apiserver.schema import Json
from kruise_probe_playground.apiserver.server import EmbeddedApiServer
from kruise_probe_playground.apiserver.store import ObjectStore
from kruise_probe_playground.marker_rules import MARKER_VALIDATORS

NO_TOKENS: Final[Tokens] = {}


class Faults:
    """Failures on demand.

    Attributes:
        failing: responses to all requests of a verb and a resource as in roles, such as `list pods` or `patch pods/status`.
        requests: counts all requests by verb and resource, and response code.
    """

    def __init__(self) -> None:
        self.failing: dict[str, Failure] = {}
        self.requests: Counter[tuple[str, int]] = Counter()

    def count(self, *, code: int) -> int:
        """Return the number of requests with this response code."""
        return sum(count for (_, status), count in self.requests.items() if status == code)

    @property
    def middleware(self) -> Middleware:
        @web.middleware
        async def count_or_fail(request: web.Request, handler: Handler) -> web.StreamResponse:
            call = _call(request)
            failure = self.failing.get(call)
            response = failure_response(failure) if failure else await handler(request)
            self.requests[call, response.status] += 1
            return response

        return count_or_fail


def _call(request: web.Request) -> str:
    path = parse_path(request.rel_url.raw_path)
    if path is None:
        return ""
    try:
        return f"{verb_of(request.method, path, request.query)} {path.resource}"
    except Failure:
        return path.resource


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
        return [kind.decode(stored) for stored in self.registry.collection(kind).ordered()]

    def object(self, resource: str, name: str, namespace: str = "") -> Json | None:
        kind = self.registry.kinds[resource]
        stored = self.registry.collection(kind).objects.get(NamespacedName(namespace, name))
        return kind.decode(stored) if stored else None


def expire_store(store: ObjectStore) -> None:
    """Expire every revision, as etcd's compaction does."""
    revision = store.next_revision()
    for collection in store.collections.values():
        collection.floor = revision
