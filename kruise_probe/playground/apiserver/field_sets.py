"""Sets of fields as `fieldsV1` writes them: nested maps, whose keys are path elements.

`f:name` is a field, `k:{"type":"Ready"}` an item of a list of type map, `v:"x"` an item of a set. A member
without members below is `{}`; one with members below holds "."; a key that only leads further holds neither.

Source: structured-merge-diff fieldpath/{set,serialize}.go.
Differs: sets are the JSON itself; the operations keep their operands unchanged.
"""

from typing import Any

import msgspec

FieldSet = dict[str, Any]

_encoder = msgspec.json.Encoder(order="sorted")


def field(name: str) -> str:
    return f"f:{name}"


def item(identity: tuple[tuple[str, Any], ...]) -> str:
    return f"k:{_encoder.encode(dict(identity)).decode()}"


def element(value: Any) -> str:
    return f"v:{_encoder.encode(value).decode()}"


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    """Members of either."""
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
    """Members of `left` that are not members of `right`; members below them stay."""
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
