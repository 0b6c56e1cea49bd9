"""The forms of objects in responses: whole objects, their metadata alone, or tables for kubectl.

Source: apiserver pkg/endpoints/handlers/{response,negotiation}; metav1.Table.
Differs: JSON only; rows of tables have the whole object.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

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

    def list(self, items: Sequence[Stored], revision: int) -> bytes:
        empty = {"continue": ""} if self._kind.custom else {}
        head = {
            "kind": f"{self._kind.kind}List",
            "apiVersion": self._kind.api_version,
            "metadata": {**empty, "resourceVersion": str(revision)},
        }
        joined = b",".join([item.body for item in items])
        return msgspec.json.encode(head)[:-1] + b',"items":[' + joined + b"]}"


class MetadataPresenter(Presenter):
    """metav1.PartialObjectMetadata."""

    def one(self, stored: Stored) -> bytes:
        return msgspec.json.encode(self._partial(stored))

    def list(self, items: Sequence[Stored], revision: int) -> bytes:
        partial = {
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": str(revision)},
            "items": list(map(self._partial, items)),
        }
        return msgspec.json.encode(partial)

    def _partial(self, stored: Stored) -> Json:
        return {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": self._kind.decode(stored)["metadata"],
        }


class TablePresenter(Presenter):
    """metav1.Table: the cells that kubectl prints, with the whole object in each row."""

    def __init__(
        self,
        kind: Kind,
        now: Callable[[], datetime],
    ) -> None:
        super().__init__(kind)
        self._now = now

    def one(self, stored: Stored) -> bytes:
        return self.list([stored], stored.revision)

    def list(self, items: Sequence[Stored], revision: int) -> bytes:
        table = {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": str(revision)},
            "columnDefinitions": [column.definition for column in self._kind.columns],
            "rows": list(map(self._row, items)),
        }
        return msgspec.json.encode(table)

    def _row(self, stored: Stored) -> Json:
        decoded = self._kind.decode(stored)
        now = self._now()
        cells = [column.cell(decoded, now) for column in self._kind.columns]
        return {"cells": cells, "object": decoded}


def presenter_for(
    kind: Kind,
    accept: str,
    now: Callable[[], datetime],
) -> Presenter:
    for media in accept.split(","):
        name, *parameters = (part.strip() for part in media.split(";"))
        if name in _JSON_TYPES:
            wanted = next(
                (parameter for parameter in parameters if parameter.startswith("as=")), ""
            )
            if not wanted:
                return Presenter(kind)
            if wanted == "as=PartialObjectMetadata":
                return MetadataPresenter(kind)
            if wanted == "as=Table":
                return TablePresenter(kind, now)
    why = "only the following media types are accepted: application/json"
    raise Failure(406, "NotAcceptable", why)
