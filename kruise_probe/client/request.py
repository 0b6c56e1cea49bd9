"""A request to the API server, as a value: method, target and body.

Source: client-go rest/request.go.
Differs: the caller encodes the body. Only the options that this project uses exist.
"""

from enum import StrEnum
from typing import Final, NamedTuple

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
