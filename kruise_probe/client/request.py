"""Builders of API requests: pure functions that return method, target and body.

They use no connection, clock or credentials. `rest` sends the requests.

Source: client-go rest/request.go.
Differs: the caller encodes the body. Only the options that this project uses exist.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.kinds import Resource, as_is
from kruise_probe.api.meta import ApiObject

JSON = "application/json"

_PODS = Resource("", "v1", "pods", "Pod", wire=ApiObject, project=as_is)
"""Only its paths are used."""


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
    upgrade: str = ""

    def __str__(self) -> str:
        return f"{self.method} {self.subject}"


def get(resource: Resource[Any], key: NamespacedName, *, subresource: str = "") -> Request:
    return Request(
        "GET",
        resource.path(key.namespace, key.name, subresource),
        _subject(resource, key, subresource),
    )


def list_page(
    resource: Resource[Any],
    *,
    namespace: str,
    limit: int,
    continue_token: str,
    resource_version: str,
    field_selector: str,
    label_selector: str,
) -> Request:
    """Build the request for a page of a list. A continue token replaces the resource version."""
    query = _query(
        limit=str(limit) if limit else "",
        **{"continue": continue_token},
        resourceVersion="" if continue_token else resource_version,
        fieldSelector=field_selector,
        labelSelector=label_selector,
    )
    return Request(
        "GET", resource.path(namespace) + query, _scope(resource, namespace), compressed=True
    )


def watch(
    resource: Resource[Any],
    *,
    namespace: str,
    resource_version: str,
    timeout_seconds: float,
    send_initial_events: bool,
    field_selector: str,
    label_selector: str,
) -> Request:
    """Build a watch with bookmarks; with `send_initial_events`, a streaming list (KEP-3157)."""
    query = _query(
        watch="true",
        allowWatchBookmarks="true",
        timeoutSeconds=str(max(int(timeout_seconds), 1)),
        resourceVersion=resource_version,
        sendInitialEvents="true" if send_initial_events else "",
        resourceVersionMatch="NotOlderThan" if send_initial_events else "",
        fieldSelector=field_selector,
        labelSelector=label_selector,
    )
    return Request("GET", resource.path(namespace) + query, _scope(resource, namespace))


def pod_stream(
    pod: NamespacedName, subresource: str, query: Sequence[tuple[str, str]], *, upgrade: str
) -> Request:
    """Build the request for a stream of a pod. Not repeatable: a command would run twice."""
    return Request(
        "GET",
        f"{_PODS.path(pod.namespace, pod.name, subresource)}?{urlencode(query, quote_via=quote)}",
        _subject(_PODS, pod, subresource),
        repeatable=False,
        upgrade=upgrade,
    )


def create(resource: Resource[Any], body: bytes, *, namespace: str, field_manager: str) -> Request:
    """Build a create. Not repeatable: a second copy would fail with AlreadyExists."""
    return Request(
        "POST",
        resource.path(namespace) + _query(fieldManager=field_manager),
        _scope(resource, namespace),
        body,
        JSON,
        repeatable=False,
    )


def replace(
    resource: Resource[Any],
    key: NamespacedName,
    body: bytes,
    *,
    subresource: str,
    field_manager: str,
) -> Request:
    """Build an update that returns only metadata.

    Not repeatable: with a resource version, a second copy would fail with Conflict.
    """
    return Request(
        "PUT",
        resource.path(key.namespace, key.name, subresource) + _query(fieldManager=field_manager),
        _subject(resource, key, subresource),
        body,
        JSON,
        repeatable=False,
        metadata_only=True,
    )


def patch(
    resource: Resource[Any],
    key: NamespacedName,
    body: bytes,
    *,
    patch_type: PatchType,
    subresource: str,
    field_manager: str,
) -> Request:
    """Build a patch.

    Merge patches are idempotent and therefore repeatable; JSON patches are not.
    """
    return Request(
        "PATCH",
        resource.path(key.namespace, key.name, subresource) + _query(fieldManager=field_manager),
        _subject(resource, key, subresource),
        body,
        patch_type,
        repeatable=patch_type is not PatchType.JSON,
    )


def delete(
    resource: Resource[Any],
    key: NamespacedName,
    *,
    uid: str = "",
) -> Request:
    """Build a delete. An object with another uid is not deleted: 409."""
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
    body = msgspec.json.encode(options) if uid else None
    return Request(
        "DELETE",
        resource.path(key.namespace, key.name),
        _subject(resource, key),
        body,
        JSON if body else "",
    )


def _query(**parameters: str) -> str:
    """Return `?a=b&c=d` of the non-empty parameters."""
    present = {name: value for name, value in parameters.items() if value}
    return "?" + urlencode(present, quote_via=quote) if present else ""


def _subject(resource: Resource[Any], key: NamespacedName, subresource: str = "") -> str:
    return f"{resource.plural}/{subresource} {key}" if subresource else f"{resource.plural} {key}"


def _scope(resource: Resource[Any], namespace: str) -> str:
    return f"{resource.plural} in {namespace}" if namespace else resource.plural
