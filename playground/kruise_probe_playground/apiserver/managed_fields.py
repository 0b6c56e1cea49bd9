"""`metadata.managedFields` after an update.

Source: apimachinery pkg/util/managedfields/internal (capmanagers.go for the limit); structured-merge-diff merge/update.go (Update).
Differs: each kind has one version, so nothing is converted; there is no operation Apply.
"""

from collections.abc import Iterable, Set
from datetime import datetime
from typing import Any, Final, NamedTuple

from kruise_probe.api.times import format_time
from kruise_probe_playground.apiserver.field_sets import Path, compare, decode, encode
from kruise_probe_playground.apiserver.schema import Json, Schema, listed, put

_SET_BY_SERVER = (
    *("name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName"),
    *("generation", "managedFields", "resourceVersion"),
)
_NEVER_MANAGED: Final[Set[Path]] = {
    *(("f:apiVersion",), ("f:kind",), ("f:metadata",)),
    *(("f:metadata", f"f:{item}") for item in _SET_BY_SERVER),
}


_MAX_MANAGERS: Final = 10
_OLD_MANAGERS: Final = "ancient-changes"


class ManagerIdentifier(NamedTuple):
    """Identifies one entry of `managedFields`."""

    manager: str
    operation: str
    api_version: str
    subresource: str


class _Entry(NamedTuple):
    fields: Set[Path]
    time: str


def track(
    live: Json,
    new: Json,
    schema: Schema,
    writer: ManagerIdentifier,
    now: datetime,
    *,
    blank: Json | None = None,
) -> None:
    """Set the managedFields of `new`, which `writer` writes in place of `live`.

    Args:
        live: the stored object; empty for a create.
        new: the object to store. A client may edit its managedFields, but not through a subresource.
        schema: of the kind.
        writer: manager, operation and subresource of the write.
        now: time of an entry that changes.
        blank: the kind's object with no field set; a create is compared with it.
    """
    entries = _entries_before(
        live,
        new,
        writer.subresource,
        typed=schema.typed,
    )
    if live and not entries:  # tracking ends when a client resets the entries
        new["metadata"].pop("managedFields", None)
        return
    comparison = compare(
        _untracked(live or blank or {}),
        _untracked(new),
        schema,
    )
    for entry in list(entries):
        fields = entries[entry].fields - comparison.changed - comparison.removed
        if fields:
            entries[entry] = entries[entry]._replace(fields=fields)
        else:
            del entries[entry]
    mine = comparison.changed - _NEVER_MANAGED
    if mine:
        before = entries[writer].fields if writer in entries else set()
        entries[writer] = _Entry(mine | before, format_time(now))
    _merge_oldest(entries)
    _store(new, entries)


def _merge_oldest(entries: dict[ManagerIdentifier, _Entry]) -> None:
    """Merge the oldest entries into one, so that at most `_MAX_MANAGERS` are left."""
    excess = len(entries) - _MAX_MANAGERS
    if excess <= 0:
        return
    oldest = sorted(entries, key=lambda writer: (entries[writer].time, writer))[: excess + 1]
    merged = [entries.pop(writer) for writer in oldest]
    bucket = ManagerIdentifier(_OLD_MANAGERS, "Update", oldest[0].api_version, "")
    if bucket in entries:
        merged.append(entries[bucket])
    fields = set[Path]().union(*(entry.fields for entry in merged))
    entries[bucket] = _Entry(fields, max(entry.time for entry in merged))


def same_but_for_times(left: Json, right: Json) -> bool:
    """Whether two objects differ at most in the times of managedFields."""
    return left == right or _without_times(left) == _without_times(right)


def _without_times(of: Json) -> Json:
    metadata = dict(of["metadata"])
    metadata["managedFields"] = [
        {**entry, "time": None} for entry in listed(metadata, "managedFields")
    ]
    return {**of, "metadata": metadata}


def _untracked(of: Json) -> Json:
    metadata = of.get("metadata")
    if not metadata or "managedFields" not in metadata:
        return of
    kept = {key: value for key, value in metadata.items() if key != "managedFields"}
    return {**of, "metadata": kept}


def _entries_before(
    live: Json, new: Json, subresource: str, *, typed: bool
) -> dict[ManagerIdentifier, _Entry]:
    stored = live.get("metadata", {}).get("managedFields") or []
    sent = new.get("metadata", {}).get("managedFields")
    if subresource or sent is None:
        return _entries_of(stored)
    if sent == [{}] or (sent == [] and typed):  # a client resets them
        return {}
    return _entries_of(sent) or _entries_of(stored)


def _entries_of(entries: Iterable[Any]) -> dict[ManagerIdentifier, _Entry]:
    decoded = {}
    for entry in entries:
        fields = entry.get("fieldsV1")
        if not _is_field_set(fields):
            return {}
        names = ("manager", "operation", "apiVersion", "subresource")
        writer = ManagerIdentifier(*(entry.get(name, "") for name in names))
        decoded[writer] = _Entry(set(decode(fields)), entry.get("time", ""))
    return decoded


def _is_field_set(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_field_set, value.values()))


def _store(new: Json, entries: dict[ManagerIdentifier, _Entry]) -> None:
    ordered = sorted(
        entries,
        key=lambda each: (each.operation, entries[each].time, each),
    )
    encoded = []
    for writer in ordered:
        entry = entries[writer]
        one = {
            "manager": writer.manager,
            "operation": writer.operation,
            "apiVersion": writer.api_version,
            "time": entry.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": encode(entry.fields),
            "subresource": writer.subresource,
        }
        encoded.append({key: value for key, value in one.items() if value != ""})
    put(new["metadata"], "managedFields", encoded or None)
