"""Sets of fields as `fieldsV1` writes them, and the comparison of two versions of an object that fills them.

A field is a path. Of its elements, `f:name` is a field, `k:{"type":"Ready"}` an item of a list of type map, `v:"x"` an
item of a set. In `fieldsV1`, which is nested maps, a member is `{}`, or contains "." if it also has members below it. A key
that only leads to members below it has no ".".

Source: structured-merge-diff fieldpath/{set,serialize}.go, typed/compare.go.
Differs: a comparison visits only changed parts, and adds new and changed fields to one set.
"""

from collections.abc import Iterator, Set
from typing import Any, Final, NamedTuple

import msgspec

from kruise_probe_playground.apiserver.schema import UNTYPED, Schema

Path = tuple[str, ...]

_encoder = msgspec.json.Encoder(order="sorted")


def decode(fields: dict[str, Any], path: Path = ()) -> Iterator[Path]:
    """The members of a `fieldsV1`."""
    for key, below in fields.items():
        if key != ".":
            if not below or "." in below:
                yield (*path, key)
            yield from decode(below, (*path, key))


def encode(fields: Set[Path]) -> dict[str, Any]:
    """The `fieldsV1` of a set, with its keys in order."""
    encoded: dict[str, Any] = {}
    for path in sorted(fields):
        node = encoded
        for length, name in enumerate(path[:-1], start=1):
            node = node.setdefault(name, {})
            if path[:length] in fields:
                node["."] = {}
        node[path[-1]] = {}
    return encoded


_ABSENT: Final = object()
"""A missing value, in contrast to null."""


class Comparison(NamedTuple):
    """`changed` contains fields that were added or have another value; `removed` those that were removed."""

    changed: set[Path]
    removed: set[Path]


def compare(old: Any, new: Any, schema: Schema) -> Comparison:
    """Compare two objects of the same kind."""
    comparison = Comparison(set(), set())
    _walk(old, new, schema, comparison, ())
    for fields in comparison:
        fields.discard(())  # the whole object is never a member
    return comparison


def _walk(
    old: Any,
    new: Any,
    schema: Schema,
    found: Comparison,
    path: Path,
) -> None:
    if old is new or old == new:
        return
    kind = _container(old, new, schema)
    if kind is None:
        (found.removed if new is _ABSENT else found.changed).add(path)
        return
    if kind is dict:
        _walk_map(old, new, schema, found, path)
    else:
        _walk_list(old, new, schema, found, path)
    if new is _ABSENT:
        found.removed.add(path)
    elif old is _ABSENT:
        found.changed.add(path)


def _container(old: Any, new: Any, schema: Schema) -> type | None:
    """Dict or list if the parts of the value are compared, None if it is one leaf."""
    for kind, atomic in ((dict, schema.atomic_map), (list, schema.list_type == "atomic")):
        if all(
            isinstance(fields, kind) or fields is _ABSENT or fields is None for fields in (old, new)
        ):
            return None if atomic or not ((old and old is not _ABSENT) or new) else kind
    return None


def _walk_map(
    old: Any,
    new: Any,
    schema: Schema,
    found: Comparison,
    path: Path,
) -> None:
    before = old if isinstance(old, dict) else {}
    after = new if isinstance(new, dict) else {}
    for key in before.keys() | after.keys():
        _walk(
            before.get(key, _ABSENT),
            after.get(key, _ABSENT),
            schema.child(key) or UNTYPED,
            found,
            (*path, f"f:{key}"),
        )


def _walk_list(
    old: Any,
    new: Any,
    schema: Schema,
    found: Comparison,
    path: Path,
) -> None:
    before = _by_element(old, schema)
    after = _by_element(new, schema)
    for key in before.keys() | after.keys():
        was = before.get(key, [])
        now = after.get(key, [])
        where = (*path, key)
        if len(was) <= 1 and len(now) <= 1:
            _walk(
                was[0] if was else _ABSENT,
                now[0] if now else _ABSENT,
                schema.items or UNTYPED,
                found,
                where,
            )
        elif was != now:  # duplicates count as one leaf
            (found.changed if now else found.removed).add(where)


def _by_element(values: Any, schema: Schema) -> dict[str, list[Any]]:
    elements: dict[str, list[Any]] = {}
    items = values if isinstance(values, list) else ()
    for item in items:
        if schema.list_type == "set":
            key = f"v:{_encoder.encode(item).decode()}"
        elif identity := schema.identity(item):
            key = f"k:{_encoder.encode(dict(identity)).decode()}"
        else:
            continue
        elements.setdefault(key, []).append(item)
    return elements
