"""The embedded API server as tests use it: with the product's CRDs and rules, requests counted and failed on demand."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from aiohttp.typedefs import Middleware
from support.faults import Faults

from kruise_probe.api.keys import NamespacedName
from kruise_probe.manifests.crds import all_crds
from kruise_probe_playground.apiserver.authentication import Tokens
from kruise_probe_playground.apiserver.custom import Validator
from kruise_probe_playground.apiserver.schema import Json
from kruise_probe_playground.apiserver.server import EmbeddedApiServer
from kruise_probe_playground.marker_rules import MARKER_VALIDATORS

NO_TOKENS: Final[Tokens] = {}


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
