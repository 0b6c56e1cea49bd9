"""Strategic merge patch, for built-in kinds.

Source: apimachinery pkg/util/strategicpatch/patch.go (merging a patch into an object).
Differs: merge keys come from the OpenAPI schema; patches are not merged with patches; the only `$patch` is `delete`,
of an item in a list; `$retainKeys` is ignored: kubectl also sends null for what it removes.
"""

from typing import Any

from kruise_probe_playground.apiserver.failures import Failure, bad_request, show
from kruise_probe_playground.apiserver.schema import UNTYPED, Json, Schema, put

_DIRECTIVE = "$patch"
_RETAIN_KEYS = "$retainKeys"
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"
_SET_ORDER = "$setElementOrder/"


def _failed(message: str) -> Failure:
    return Failure(500, "InternalError", message)


def strategic_merge_patch(original: Json, patch: Json, schema: Schema) -> Json:
    """Return the patched object. `original` does not change; parts are shared."""
    if _DIRECTIVE in patch:
        raise _failed(f"Unknown patch type: {patch[_DIRECTIVE]!r} in a map")
    merged = dict(original)
    orders = {key: value for key, value in patch.items() if key.startswith(_SET_ORDER)}
    for key, value in patch.items():
        if key == _RETAIN_KEYS or key.startswith(_SET_ORDER):
            continue
        if key.startswith(_DELETE_PRIMITIVES):
            name = key.removeprefix(_DELETE_PRIMITIVES)
            if not isinstance(value, list):
                raise bad_request(f"invalid patch format of primitive list {name}")
            if isinstance(merged.get(name), list):
                merged[name] = [each for each in merged[name] if each not in value]
        elif value is None:
            merged.pop(key, None)
        else:
            _merge_field(merged, key, value, schema.child(key) or UNTYPED)
    for key, order in orders.items():
        name = key.removeprefix(_SET_ORDER)
        _enforce_order(merged, name, order, original, schema.child(name) or UNTYPED)
    return merged


def _merge_field(merged: Json, key: str, value: Any, schema: Schema) -> None:
    present = merged.get(key)
    if isinstance(present, dict) and isinstance(value, dict):
        merged[key] = strategic_merge_patch(present, value, schema)
    elif isinstance(present, list) and isinstance(value, list) and schema.merges:
        merged[key] = _merge_list(present, value, schema)
    else:
        put(merged, key, _without_directives(value))


def _merge_list(original: list[Any], patch: list[Any], schema: Schema) -> list[Any]:
    if not any(isinstance(each, dict) for each in (*original, *patch)):
        merged = list({_identity(each, ""): each for each in (*original, *patch)}.values())
        return _ordered(merged, patch, original, "")
    if not schema.merge_key:
        raise _failed("cannot merge lists without merge key")
    kept, changes = _special_items(original, patch, schema.merge_key)
    merged = list(kept)
    for each in changes:
        value = _key_of(each, schema.merge_key)
        place = _find(merged, schema.merge_key, value)
        if place is None:
            merged.append(_without_directives(each))
        else:
            merged[place] = strategic_merge_patch(merged[place], each, schema.items or UNTYPED)
    return _ordered(merged, changes, kept, schema.merge_key)


def _special_items(
    original: list[Any], patch: list[Any], merge_key: str
) -> tuple[list[Any], list[Any]]:
    """Apply the items with `$patch`; return the rest of both lists."""
    special = [each for each in patch if isinstance(each, dict) and _DIRECTIVE in each]
    for each in special:
        if each[_DIRECTIVE] != "delete":
            raise _failed(f"Unknown patch type: {each[_DIRECTIVE]!r} in a list")
    gone = [_key_of(each, merge_key) for each in special]
    kept = [each for each in original if each.get(merge_key) not in gone]
    return kept, [each for each in patch if each not in special]


def _key_of(item: Any, merge_key: str) -> Any:
    if not isinstance(item, dict) or merge_key not in item:
        raise _failed(f"map: {item!r} does not contain declared merge key: {merge_key}")
    return item[merge_key]


def _find(items: list[Any], merge_key: str, value: Any) -> int | None:
    maps = ((at, each) for at, each in enumerate(items) if isinstance(each, dict))
    return next((at for at, each in maps if each.get(merge_key) == value), None)


def _without_directives(value: Any) -> Any:
    """The value to store in an absent field; None for a directive."""
    if isinstance(value, dict):
        cleaned: Json = {}
        for key, each in value.items():
            if not key.startswith((_RETAIN_KEYS, _SET_ORDER, _DELETE_PRIMITIVES)):
                put(cleaned, key, _without_directives(each))
        return None if _DIRECTIVE in value else cleaned
    if isinstance(value, list):
        kept = (each for each in value if not (isinstance(each, dict) and _DIRECTIVE in each))
        return [_without_directives(each) for each in kept]
    return value


def _enforce_order(merged: Json, key: str, order: Any, original: Json, schema: Schema) -> None:
    if isinstance(merged.get(key), list) and isinstance(order, list):
        live = original[key] if isinstance(original.get(key), list) else []
        merged[key] = _ordered(merged[key], order, live, schema.merge_key)


def _ordered(items: list[Any], wanted: list[Any], live: list[Any], merge_key: str) -> list[Any]:
    """Order the items of the patch as in the patch, and merge the others in the order of the live list."""
    wanted_places = _places(wanted, merge_key)
    live_places = _places(live, merge_key)
    named: list[Any] = []
    others: list[Any] = []
    for each in items:
        (named if _identity(each, merge_key) in wanted_places else others).append(each)
    named.sort(key=lambda each: wanted_places[_identity(each, merge_key)])
    others.sort(key=lambda each: live_places.get(_identity(each, merge_key), len(live)))
    merged = []
    while named and others:
        left = live_places.get(_identity(others[0], merge_key))
        right = live_places.get(_identity(named[0], merge_key))
        live_first = left is not None and right is not None and left < right
        merged.append((others if live_first else named).pop(0))
    return [*merged, *named, *others]


def _places(items: list[Any], merge_key: str) -> dict[str, int]:
    places: dict[str, int] = {}
    for place, each in enumerate(items):
        places.setdefault(_identity(each, merge_key), place)
    return places


def _identity(item: Any, merge_key: str) -> str:
    """What identifies an item, as JSON: a client may send a list or an object, which has no hash."""
    return show(item.get(merge_key) if isinstance(item, dict) else item)
