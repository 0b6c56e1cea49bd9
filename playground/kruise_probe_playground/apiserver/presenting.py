"""The forms of objects in responses: whole objects, tables for kubectl, or metadata only.

Source: apiserver pkg/endpoints/handlers/{response,negotiation}; metav1.Table.
Differs: JSON only.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from kruise_probe_playground.apiserver.failures import Failure
from kruise_probe_playground.apiserver.kinds import Kind
from kruise_probe_playground.apiserver.listing import Page
from kruise_probe_playground.apiserver.schema import Json
from kruise_probe_playground.apiserver.store import Stored

_JSON_TYPES: Final = ("application/json", "application/*", "*/*", "")
_META_VERSION: Final = "meta.k8s.io/v1"


def list_metadata(page: Page) -> Json:
    metadata: Json = {"resourceVersion": str(page.revision)}
    if page.continue_token:
        metadata["continue"] = page.continue_token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
    return metadata


class Presenter:
    """Encodes stored objects for a response: here whole objects, which are the stored bytes."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    def one(self, stored: Stored) -> bytes:
        """A single object, also the object of a watch event."""
        return self._kind.whole(stored)

    def bookmark(self, bare: Json) -> bytes:
        return msgspec.json.encode(bare)

    def page(self, page: Page) -> bytes:
        empty: Json = {"continue": ""} if self._kind.custom else {}
        head = {
            "kind": self._kind.list_kind or f"{self._kind.kind}List",
            "apiVersion": self._kind.api_version,
            "metadata": {**empty, **list_metadata(page)},
        }
        items = b",".join([each.body for each in page.items])
        return msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}"


def partial_metadata(of: Json) -> Json:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": _META_VERSION,
        "metadata": of["metadata"],
    }


class MetadataPresenter(Presenter):
    def one(self, stored: Stored) -> bytes:
        return msgspec.json.encode(partial_metadata(self._kind.decode(stored)))

    def bookmark(self, bare: Json) -> bytes:
        return msgspec.json.encode(partial_metadata(bare))

    def page(self, page: Page) -> bytes:
        return msgspec.json.encode(
            {
                "kind": "PartialObjectMetadataList",
                "apiVersion": _META_VERSION,
                "metadata": list_metadata(page),
                "items": [partial_metadata(self._kind.decode(each)) for each in page.items],
            }
        )


class TablePresenter(Presenter):
    """metav1.Table: the cells that kubectl prints. In a watch, only the first event has column definitions.

    Args:
        include: None, Metadata or Object: the part of the object in each row.
    """

    def __init__(self, kind: Kind, include: str, now: Callable[[], datetime]) -> None:
        super().__init__(kind)
        self._include = include
        self._now = now
        self._headed = False

    def one(self, stored: Stored) -> bytes:
        return self._table([stored], {"resourceVersion": str(stored.revision)})

    def page(self, page: Page) -> bytes:
        return self._table(page.items, list_metadata(page))

    def bookmark(self, bare: Json) -> bytes:
        """A table whose only row contains the bookmark's object."""
        metadata = {"resourceVersion": bare["metadata"]["resourceVersion"]}
        return _table(metadata, None, [{"cells": None, "object": partial_metadata(bare)}])

    def _table(self, items: Sequence[Stored], metadata: Json) -> bytes:
        now = self._now()
        columns = None if self._headed else [each.definition for each in self._kind.columns]
        self._headed = True
        return _table(metadata, columns, [self._row(each, now) for each in items])

    def _row(self, stored: Stored, now: datetime) -> Json:
        decoded = self._kind.decode(stored)
        row: Json = {"cells": [each.cell(decoded, now) for each in self._kind.columns]}
        shown = {"Object": decoded, "Metadata": partial_metadata(decoded)}
        return {**row, "object": shown.get(self._include)}


def _table(metadata: Json, columns: Sequence[Json] | None, rows: Sequence[Json]) -> bytes:
    return msgspec.json.encode(
        {
            "kind": "Table",
            "apiVersion": _META_VERSION,
            "metadata": metadata,
            "columnDefinitions": columns,
            "rows": rows,
        }
    )


def presenter_for(
    accept: str, query: Mapping[str, str], kind: Kind, now: Callable[[], datetime]
) -> Presenter:
    for media in accept.split(","):
        name, *parameters = (part.strip() for part in media.split(";"))
        if name not in _JSON_TYPES:
            continue
        wanted = dict(each.split("=", 1) for each in parameters if "=" in each).get("as", "")
        if not wanted:
            return Presenter(kind)
        if wanted == "Table":
            return TablePresenter(kind, query.get("includeObject") or "Metadata", now)
        if wanted in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            return MetadataPresenter(kind)
    why = "only the following media types are accepted: application/json"
    raise Failure(406, "NotAcceptable", why)
