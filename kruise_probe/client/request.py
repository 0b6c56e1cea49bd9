"""A request to the API server, as a value: method, target and body.

Source: client-go rest/request.go.
Differs: callers encode the bodies, as each kind of write has its own patch. Only the options that this project uses
exist.
"""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple

from kruise_probe.api.meta import NamespacedName

JSON: Final = "application/json"
REQUEST_SECONDS: Final = 30.0
"""Deadline of every request except a watch, and of opening a watch."""
WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
METADATA_ONLY: Final = (
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
)


_OBJECT: Final = re.compile(
    r"/apis?(?:/[^/]+)?/v[0-9][^/]*(?:/namespaces/([^/]+)(?=/))?/([^/]+)(?:/([^/]+)(?:/(.+))?)?"
)
"""Namespace, plural, name and subresource in the path of a request."""


class PatchType(StrEnum):
    """The content type of a patch."""

    MERGE = "application/merge-patch+json"
    STRATEGIC_MERGE = "application/strategic-merge-patch+json"


class Request(NamedTuple):
    """One request, ready to be sent any number of times.

    Attributes:
        target: path and query, quoted.
        content_type: empty without a body.
        repeatable: True if the request is idempotent, so it may be sent again after its connection
            broke without a response.
        metadata_only: True if at most the metadata of the response is used. It is then requested as
            PartialObjectMetadata.
        compressed: True if the response may be large. It is then requested with gzip.
        streams: True for a watch, and for a stream of a pod.
        upgrade: header lines that request another protocol. A stream of its bytes follows the response.
        deadline_seconds: from the begin to the response; of a large body from its last progress.
        on_sent: called with the connection in the step that writes the request to it.
    """

    method: str
    target: str
    body: bytes | None = None
    content_type: str = ""
    repeatable: bool = True
    metadata_only: bool = False
    compressed: bool = False
    streams: bool = False
    upgrade: str = ""
    deadline_seconds: float = REQUEST_SECONDS
    on_sent: Callable[..., None] | None = None

    @property
    def namespace(self) -> str:
        """The namespace in the target; empty if there is none."""
        found = _OBJECT.match(self.target)
        if found is None:
            return ""
        return found.groups("")[0]

    def __str__(self) -> str:
        """Method, resource and object, for errors and logs: `PATCH pods/status default/web-0`."""
        path = self.target.partition("?")[0]
        found = _OBJECT.fullmatch(path)
        if found is None:
            return f"{self.method} {path}"
        namespace, plural, name, subresource = found.groups("")
        text = f"{self.method} {plural}"
        if subresource:
            text += f"/{subresource}"
        if name:
            return f"{text} {NamespacedName(namespace, name)}"
        if namespace:
            return f"{text} in {namespace}"
        return text
