"""The forms of objects in responses: whole objects, or tables for kubectl.

Source: apiserver pkg/endpoints/handlers/{response,negotiation}; metav1.Table.
Differs: JSON only; no PartialObjectMetadata but in tables.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from kruise_probe_playground.apiserver.failures import Failure
from kruise_probe_playground.apiserver.kinds import Kind
from kruise_probe_playground.apiserver.schema import Json
from kruise_probe_playground.apiserver.store import Stored

_JSON_TYPES: Final = ("application/json", "application/*", "*/*", "")


class Presenter:
    """Encodes stored objects for a response: here whole objects, which are the stored bytes."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    def one(self, stored: Stored) -> bytes:
        """A single object, also the object of a watch event."""
        return self._kind.whole(stored)

    def bookmark(self, bare: Json) -> bytes:
        return msgspec.json.encode(bare)

    def list(self, items: Sequence[Stored], revision: int) -> bytes:
        empty = {"continue": ""} if self._kind.custom else {}
        head = {
            "kind": f"{self._kind.kind}List",
            "apiVersion": self._kind.api_version,
            "metadata": {**empty, "resourceVersion": str(revision)},
        }
        joined = b",".join([each.body for each in items])
        return msgspec.json.encode(head)[:-1] + b',"items":[' + joined + b"]}"


def _meta(kind: str, **fields: Any) -> Json:
    return {"kind": kind, "apiVersion": "meta.k8s.io/v1", **fields}


def _partial(of: Json) -> Json:
    return _meta("PartialObjectMetadata", metadata=of["metadata"])


class TablePresenter(Presenter):
    """metav1.Table: the cells that kubectl prints. In a watch, only the first event has column definitions.

    Args:
        include: None, Metadata or Object: the part of the object in each row.
    """

    def __init__(self, kind: Kind, include: str, now: Callable[[], datetime]) -> None:
        super().__init__(kind)
        self._include = include
        self._now = now
        self._columns: list[Json] | None = [each.definition for each in kind.columns]

    def one(self, stored: Stored) -> bytes:
        return self._table({"resourceVersion": str(stored.revision)}, [self._row(stored)])

    def list(self, items: Sequence[Stored], revision: int) -> bytes:
        return self._table({"resourceVersion": str(revision)}, [self._row(each) for each in items])

    def bookmark(self, bare: Json) -> bytes:
        """A table whose only row contains the bookmark's object."""
        self._columns = None
        metadata = {"resourceVersion": bare["metadata"]["resourceVersion"]}
        return self._table(metadata, [{"cells": None, "object": _partial(bare)}])

    def _table(self, metadata: Json, rows: Sequence[Json]) -> bytes:
        columns, self._columns = self._columns, None
        table = _meta("Table", metadata=metadata, columnDefinitions=columns, rows=rows)
        return msgspec.json.encode(table)

    def _row(self, stored: Stored) -> Json:
        decoded, now = self._kind.decode(stored), self._now()
        shown = {"Object": decoded, "Metadata": _partial(decoded)}
        cells = [each.cell(decoded, now) for each in self._kind.columns]
        return {"cells": cells, "object": shown.get(self._include)}


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
    why = "only the following media types are accepted: application/json"
    raise Failure(406, "NotAcceptable", why)
