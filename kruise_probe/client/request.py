"""A request to the API server, as a value: method, target and body. And what callers need: one protocol per verb.

Source: client-go rest/request.go; controller-runtime pkg/client/interfaces.go (Reader, Writer).
Differs: callers encode the bodies, as each kind of write has its own patch. Only the options that this project uses
exist.
"""

from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.kinds import KubeObject, Resource
from kruise_probe.api.meta import ObjectMeta

T = TypeVar("T", bound=KubeObject)

JSON: Final = "application/json"
METADATA_ONLY: Final = (
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
)


class PatchType(StrEnum):
    """The content type of a patch."""

    MERGE = "application/merge-patch+json"
    STRATEGIC_MERGE = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"


class Request(NamedTuple):
    """One request, ready to be sent any number of times.

    Attributes:
        target: path and query, quoted.
        content_type: empty without a body.
        subject: resource and object, for errors and logs: `pods/status default/web-0`.
        repeatable: True if the request is idempotent, so it may be sent again after its connection
            broke without a response.
        metadata_only: True if at most the metadata of the response is used. It is then requested as
            PartialObjectMetadata.
        compressed: True if the response may be large. It is then requested with gzip.
        streams: True for a watch, and for a stream of a pod.
        upgrade: header lines that request another protocol. A stream of its bytes follows the response.
    """

    method: str
    target: str
    subject: str
    body: bytes | None = None
    content_type: str = ""
    repeatable: bool = True
    metadata_only: bool = False
    compressed: bool = False
    streams: bool = False
    upgrade: str = ""

    def __str__(self) -> str:
        return f"{self.method} {self.subject}"


# A caller combines the verbs of `RestClient` that it uses, so a fake has no others. Each raises `KubeError` if the
# request failed.


class Getter(Protocol):
    async def get(self, resource: Resource[T], key: NamespacedName) -> T: ...


class Creator(Protocol):
    async def create(self, resource: Resource[T], body: bytes, *, namespace: str = "") -> T: ...


class Replacer(Protocol):
    async def replace_for_metadata(
        self, resource: Resource[Any], key: NamespacedName, body: bytes, *, subresource: str = ""
    ) -> ObjectMeta: ...


class Patcher(Protocol):
    async def patch(
        self,
        resource: Resource[T],
        key: NamespacedName,
        body: bytes,
        *,
        patch_type: PatchType,
        subresource: str = "",
    ) -> T: ...


class Deleter(Protocol):
    async def delete(
        self, resource: Resource[Any], key: NamespacedName, *, uid: str = ""
    ) -> object: ...
