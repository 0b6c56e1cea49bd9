"""Strategic merge patch, for built-in kinds.

Source: apimachinery pkg/util/strategicpatch/patch.go (merging a patch into an object).
Differs: merge keys come from the OpenAPI schema; patches are not merged with patches; the only `$patch` is `delete`,
of an item in a list; `$retainKeys` is ignored: kubectl also sends null for what it removes. New items are the last of
their list, and so are those that `$setElementOrder` does not name.
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
    for key, value in sorted(
        patch.items(),
        key=lambda each: each[0].startswith(_SET_ORDER),
    ):
        name = key.partition("/")[2]
        if key.startswith((_DELETE_PRIMITIVES, _SET_ORDER)) and not isinstance(value, list):
            raise bad_request(f"invalid patch format of {key}")
        if key.startswith(_DELETE_PRIMITIVES):
            if isinstance(merged.get(name), list):
                merged[name] = [item for item in merged[name] if item not in value]
        elif key.startswith(_SET_ORDER):
            if isinstance(merged.get(name), list):
                merge_key = (schema.child(name) or UNTYPED).merge_key
                merged[name] = _ordered(merged[name], value, merge_key)
        elif value is None:
            merged.pop(key, None)
        elif key != _RETAIN_KEYS:
            _merge_field(
                merged,
                key,
                value,
                schema.child(key) or UNTYPED,
            )
    return merged


def _merge_field(
    merged: Json,
    key: str,
    value: Any,
    schema: Schema,
) -> None:
    present = merged.get(key)
    if isinstance(present, dict) and isinstance(value, dict):
        merged[key] = strategic_merge_patch(present, value, schema)
    elif isinstance(present, list) and isinstance(value, list) and schema.merges:
        merged[key] = _merge_list(present, value, schema)
    else:
        put(merged, key, _without_directives(value))


def _merge_list(
    original: list[Any],
    patch: list[Any],
    schema: Schema,
) -> list[Any]:
    """Merge the items of the patch into those with the same key; append the others."""
    if not any(isinstance(item, dict) for item in (*original, *patch)):
        return list({show(item): item for item in (*original, *patch)}.values())
    key = schema.merge_key
    if not key:
        raise _failed("cannot merge lists without merge key")
    merged = list(original)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise _failed(f"map: {item!r} does not contain declared merge key: {key}")
        if item.get(_DIRECTIVE, "delete") != "delete":
            raise _failed(f"Unknown patch type: {item[_DIRECTIVE]!r} in a list")
        place = next((at for at, old in enumerate(merged) if old.get(key) == item[key]), None)
        if _DIRECTIVE in item:
            merged = [old for old in merged if old.get(key) != item[key]]
        elif place is None:
            merged.append(_without_directives(item))
        else:
            merged[place] = strategic_merge_patch(
                merged[place],
                item,
                schema.items or UNTYPED,
            )
    return merged


def _without_directives(value: Any) -> Any:
    """The value to store in an absent field; None for a directive."""
    if isinstance(value, dict):
        cleaned: Json = {}
        for key, field in value.items():
            if not key.startswith((_RETAIN_KEYS, _SET_ORDER, _DELETE_PRIMITIVES)):
                put(cleaned, key, _without_directives(field))
        return None if _DIRECTIVE in value else cleaned
    if isinstance(value, list):
        kept = (item for item in value if not (isinstance(item, dict) and _DIRECTIVE in item))
        return [_without_directives(item) for item in kept]
    return value


def _ordered(
    items: list[Any],
    wanted: list[Any],
    merge_key: str,
) -> list[Any]:
    """The items as `wanted` lists them by their keys, then the others."""

    def identity(item: Any) -> str:
        return show(item.get(merge_key) if isinstance(item, dict) else item)

    places = {identity(item): place for place, item in enumerate(wanted)}
    return sorted(
        items,
        key=lambda each: places.get(identity(each), len(places)),
    )
