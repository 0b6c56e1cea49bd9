"""Sets of fields as `fieldsV1` writes them, and the comparison of two versions of an object that fills them.

A set is nested maps, whose keys are path elements. `f:name` is a field, `k:{"type":"Ready"}` an item of a list of type
map, `v:"x"` an item of a set. A member is `{}`, or contains "." if it also has members below it. A key that only leads to
members below it has no ".".

Source: structured-merge-diff fieldpath/{set,serialize}.go, typed/compare.go.
Differs: sets are the JSON itself; operations do not change their operands. A comparison visits only changed parts, and
adds new and changed fields to one set.
"""

from typing import Any, Final, NamedTuple

import msgspec

from kruise_probe_playground.apiserver.schema import UNTYPED, Schema

FieldSet = dict[str, Any]

_encoder = msgspec.json.Encoder(order="sorted")


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    """The members of either set."""
    merged = dict(left)
    for key, below in right.items():
        merged[key] = _union_below(merged[key], below) if key in merged else below
    return merged


def _union_below(left: FieldSet, right: FieldSet) -> FieldSet:
    if not left or not right:
        rest = left or right
        return {".": {}, **rest} if rest else {}
    return union(left, right)


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """The members of `left` that are not members of `right`. Members below a removed one stay."""
    kept: FieldSet = {}
    for key, below in left.items():
        if key == ".":
            if "." not in right:
                kept["."] = {}
            continue
        other = right.get(key)
        if other is None:
            kept[key] = below
            continue
        rest = _difference_below(below, other)
        if rest is not None:
            kept[key] = rest
    return kept


def _difference_below(below: FieldSet, other: FieldSet) -> FieldSet | None:
    """None when neither the element itself nor anything below it remains."""
    is_member = not below or "." in below
    taken = not other or "." in other
    rest = difference({key: each for key, each in below.items() if key != "."}, other)
    if is_member and not taken:
        return {".": {}, **rest} if rest else {}
    return rest or None


_ABSENT: Final = object()
"""A missing value, in contrast to null."""


class Comparison(NamedTuple):
    """`changed` contains fields that were added or have another value; `removed` those that were removed."""

    changed: FieldSet
    removed: FieldSet


def compare(old: Any, new: Any, schema: Schema) -> Comparison:
    """Compare two objects of the same kind."""
    comparison = Comparison({}, {})
    _walk(old, new, schema, comparison, ())
    return comparison


def _walk(old: Any, new: Any, schema: Schema, found: Comparison, path: tuple[str, ...]) -> None:
    if old is new or old == new:
        return
    kind = _container(old, new, schema)
    if kind is None:
        _insert(found.removed if new is _ABSENT else found.changed, path)
        return
    if kind is dict:
        _walk_map(old, new, schema, found, path)
    else:
        _walk_list(old, new, schema, found, path)
    if new is _ABSENT:
        _insert(found.removed, path)
    elif old is _ABSENT:
        _insert(found.changed, path)


def _container(old: Any, new: Any, schema: Schema) -> type | None:
    """Dict or list if the parts of the value are compared, None if it is one leaf."""
    for kind, atomic in ((dict, schema.atomic_map), (list, schema.list_type == "atomic")):
        if all(isinstance(each, kind) or each is _ABSENT or each is None for each in (old, new)):
            return None if atomic or not ((old and old is not _ABSENT) or new) else kind
    return None


def _walk_map(old: Any, new: Any, schema: Schema, found: Comparison, path: tuple[str, ...]) -> None:
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
    old: Any, new: Any, schema: Schema, found: Comparison, path: tuple[str, ...]
) -> None:
    before = _by_element(old, schema)
    after = _by_element(new, schema)
    for key in before.keys() | after.keys():
        was, now = before.get(key, []), after.get(key, [])
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
            _insert(found.changed if now else found.removed, where)


def _by_element(values: Any, schema: Schema) -> dict[str, list[Any]]:
    elements: dict[str, list[Any]] = {}
    for each in values if isinstance(values, list) else ():
        if schema.list_type == "set":
            key = f"v:{_encoder.encode(each).decode()}"
        elif identity := schema.identity(each):
            key = f"k:{_encoder.encode(dict(identity)).decode()}"
        else:
            continue
        elements.setdefault(key, []).append(each)
    return elements


def _insert(fields: FieldSet, path: tuple[str, ...]) -> None:
    """Make `path` a member. The whole object is never a member."""
    if not path:
        return
    for name in path[:-1]:
        below = fields.get(name)
        if below is None:
            fields[name] = below = {}
        elif not below:
            below["."] = {}
        fields = below
    last = fields.get(path[-1])
    if last is None:
        fields[path[-1]] = {}
    elif last:
        last["."] = {}
