"""Which fields one version of an object added, changed and removed against another.

Source: structured-merge-diff typed/compare.go.
Differs: only what changed is walked, equal parts are skipped at once; the three kinds of change fill two
sets, as nobody tells added from changed.
"""

from typing import Any

from kruise_probe.playground.apiserver.field_sets import FieldSet, element, field, item
from kruise_probe.playground.apiserver.schema import UNTYPED, Schema


class _Absent:
    """Tells a missing value from a null."""


_ABSENT = _Absent()


class Comparison:
    """The outcome: `changed` holds what was added or has another value now, `removed` what is gone."""

    def __init__(self) -> None:
        self.changed: FieldSet = {}
        self.removed: FieldSet = {}


def compare(old: Any, new: Any, schema: Schema) -> Comparison:
    """Compares two objects of the same kind."""
    comparison = Comparison()
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
    """Dict or list when the value is compared part by part, None when it is one leaf."""
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
            (*path, field(key)),
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
            key: str | None = element(each)
        else:
            identity = schema.identity(each)
            key = item(identity) if identity else None
        if key is not None:
            elements.setdefault(key, []).append(each)
    return elements


def _insert(fields: FieldSet, path: tuple[str, ...]) -> None:
    """Makes `path` a member; nobody owns the whole object."""
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
