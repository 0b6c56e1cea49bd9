"""What is sent, as values: pure functions from an intent to method, target and body.

Knows no connection, no clock and no credentials; `rest` sends what is built here.

Source: client-go rest/request.go.
Differs: bodies are bytes that the caller encoded, and options are those that this project uses.
"""

from enum import StrEnum
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.resources import Resource

JSON = "application/json"


class PatchType(StrEnum):
    """The content type by which the server tells the kinds of patch apart."""

    MERGE = "application/merge-patch+json"
    STRATEGIC_MERGE = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"


class Request(NamedTuple):
    """One request, ready to be sent any number of times.

    Attributes:
        target: path and query, quoted.
        content_type: empty without a body.
        subject: what it is about, for errors and logs: `pods/status default/web-0`.
        repeatable: True when a second copy of it does no harm, so that it may be sent again after a
            connection broke without an answer.
        metadata_only: True when nobody reads the answer: the server is asked for as little as it
            can give.
        compressed: True when the answer may be large: then compression is asked for.
    """

    method: str
    target: str
    subject: str
    body: bytes | None = None
    content_type: str = ""
    repeatable: bool = True
    metadata_only: bool = False
    compressed: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.subject}"


def get(resource: Resource[Any], key: NamespacedName) -> Request:
    return Request("GET", resource.path(key.namespace, key.name), _subject(resource, key))


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
    """A page of a list; a continued page is pinned by its token, so no resource version goes along."""
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
    """A watch with bookmarks; with `send_initial_events` it starts with the list itself (KEP-3157)."""
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


def create(resource: Resource[Any], body: bytes, *, namespace: str, field_manager: str) -> Request:
    """Not repeatable: a second copy would meet its own first one as AlreadyExists."""
    return Request(
        "POST",
        resource.path(namespace) + _query(fieldManager=field_manager),
        _scope(resource, namespace),
        body,
        JSON,
        repeatable=False,
    )


def replace(
    resource: Resource[Any], key: NamespacedName, body: bytes, *, field_manager: str
) -> Request:
    """Not repeatable: with a resource version, a second copy would meet its own first one as Conflict."""
    return Request(
        "PUT",
        resource.path(key.namespace, key.name) + _query(fieldManager=field_manager),
        _subject(resource, key),
        body,
        JSON,
        repeatable=False,
    )


def patch(
    resource: Resource[Any],
    key: NamespacedName,
    body: bytes,
    *,
    patch_type: PatchType,
    subresource: str,
    field_manager: str,
    metadata_only: bool,
) -> Request:
    """Merge patches say what shall be, so a second copy changes nothing; a JSON patch says what to do."""
    return Request(
        "PATCH",
        resource.path(key.namespace, key.name, subresource) + _query(fieldManager=field_manager),
        _subject(resource, key, subresource),
        body,
        patch_type,
        repeatable=patch_type is not PatchType.JSON,
        metadata_only=metadata_only,
    )


def delete(resource: Resource[Any], key: NamespacedName, *, uid: str) -> Request:
    """With `uid` only that very object is deleted: a successor under the same name answers 409."""
    body = (
        msgspec.json.encode(
            {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        )
        if uid
        else None
    )
    return Request(
        "DELETE",
        resource.path(key.namespace, key.name),
        _subject(resource, key),
        body,
        JSON if body else "",
        metadata_only=True,
    )


def _query(**parameters: str) -> str:
    """`?a=b&c=d` of those that are not empty."""
    present = {name: value for name, value in parameters.items() if value}
    return "?" + urlencode(present, quote_via=quote) if present else ""


def _subject(resource: Resource[Any], key: NamespacedName, subresource: str = "") -> str:
    return f"{resource.plural}/{subresource} {key}" if subresource else f"{resource.plural} {key}"


def _scope(resource: Resource[Any], namespace: str) -> str:
    return f"{resource.plural} in {namespace}" if namespace else resource.plural
