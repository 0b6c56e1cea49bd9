"""JSON merge patch and JSON patch.

Source: RFC 7386 and RFC 6902; evanphx/json-patch v4, which allows more than the RFC: `replace` adds a missing key, a
missing value is null, and negative indices count from the end.
Differs: nothing.
"""

from copy import deepcopy
from typing import Any


class PatchFailed(Exception):
    """The patch cannot be applied to this object; `code` is the HTTP status."""

    def __init__(self, message: str, code: int = 422) -> None:
        self.code = code
        super().__init__(message)


def merge_patch(target: Any, patch: Any) -> Any:
    """Return the patched value. `target` does not change; parts are shared."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(target: Any, operations: Any) -> Any:
    """Return the patched value. `target` does not change.

    Raises:
        PatchFailed: the path does not exist, a test failed, or this is not a patch.
    """
    if not isinstance(operations, list) or not all(isinstance(each, dict) for each in operations):
        raise PatchFailed("error decoding patch: a JSON patch is a list of operations", 400)
    document = deepcopy(target)
    for operation in operations:
        if (operation.get("op"), operation.get("path")) == ("replace", ""):
            document = _whole(operation.get("value"))
        else:
            _apply(document, operation)
    return document


def _whole(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        return value
    raise PatchFailed("replace operation value must be object or array")


def _apply(document: Any, operation: dict[str, Any]) -> None:
    parent, key = _place(document, operation.get("path"))
    value = operation.get("value")
    match operation.get("op"):
        case "add":
            _add(parent, key, value)
        case "remove":
            _remove(parent, key)
        case "replace":
            parent[key if isinstance(parent, dict) else _index(key, len(parent))] = value
        case "test":
            if _get(parent, key) != value:
                raise PatchFailed(f"testing value {operation.get('path')} failed: test failed")
        case "copy":
            _add(parent, key, deepcopy(_get(*_place(document, operation.get("from")))))
        case "move":
            source, name = _place(document, operation.get("from"))
            moved = _get(source, name)
            _remove(source, name)
            _add(*_place(document, operation.get("path")), moved)
        case other:
            raise PatchFailed(f"Unexpected kind: {other}")


def _place(document: Any, pointer: Any) -> tuple[Any, str]:
    """The container and the key in it that a pointer names."""
    if not isinstance(pointer, str) or "/" not in pointer:
        raise PatchFailed(f"missing path: {pointer!r}")
    _, *parts = (part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/"))
    for part in parts[:-1]:
        document = _get(document, part)
    if not isinstance(document, (dict, list)):
        raise PatchFailed(f"doc is missing path: {pointer}: missing value")
    return document, parts[-1]


def _get(parent: Any, key: str) -> Any:
    if isinstance(parent, dict):
        return parent.get(key)
    if isinstance(parent, list):
        return parent[_index(key, len(parent))]
    raise PatchFailed(f"doc is missing key: {key}")


def _index(text: str, size: int) -> int:
    try:
        index = int(text)
    except ValueError:
        raise PatchFailed(f"{text!r} is not an index") from None
    if not -size <= index < size:
        raise PatchFailed(f"unable to access invalid index: {text}")
    return index % size


def _add(parent: Any, key: str, value: Any) -> None:
    if isinstance(parent, dict):
        parent[key] = value
    else:
        size = len(parent) + 1
        parent.insert(size - 1 if key == "-" else _index(key, size), value)


def _remove(parent: Any, key: str) -> None:
    if isinstance(parent, dict) and key not in parent:
        raise PatchFailed(f"unable to remove nonexistent key: {key}: missing value")
    del parent[key if isinstance(parent, dict) else _index(key, len(parent))]
