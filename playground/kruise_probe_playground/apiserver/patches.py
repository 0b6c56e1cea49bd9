"""JSON merge patch and JSON patch.

Source: RFC 7386 and RFC 6902; evanphx/json-patch for the errors.
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
    if not isinstance(operations, list):
        raise PatchFailed("a JSON patch is a list of operations", 400)
    document = {"": deepcopy(target)}
    for operation in operations:
        _apply(document, operation)
    return document.get("")


def _apply(document: dict[str, Any], operation: Any) -> None:
    try:
        kind, path = operation["op"], _parts(operation["path"])
        if kind in ("add", "replace", "test"):
            value = operation["value"]
        elif kind in ("move", "copy"):
            value = deepcopy(_get(document, _parts(operation["from"])))
        elif kind == "remove":
            value = None
        else:
            raise PatchFailed(f"Unexpected kind: {kind}", 422)
    except (KeyError, TypeError, AttributeError) as error:
        raise PatchFailed(f"incomplete JSON patch operation {operation!r}", 400) from error
    if kind == "test":
        if _get(document, path) != value:
            raise PatchFailed(f"testing value {operation['path']} failed: test failed")
        return
    if kind == "move":
        _remove(document, _parts(operation["from"]))
    if kind == "remove":
        _remove(document, path)
    elif kind == "replace":
        _get(document, path)
        _set(document, path, value, replace=True)
    else:
        _set(document, path, value, replace=False)


def _parts(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")]


def _missing(path: list[str]) -> PatchFailed:
    pointer = "/".join(path)
    return PatchFailed(f"the server rejected our request: no such path in the object: {pointer}")


def _step(parent: Any, part: str, path: list[str]) -> Any:
    if isinstance(parent, dict) and part in parent:
        return parent[part]
    if isinstance(parent, list):
        return parent[_index(part, len(parent) - 1, path)]
    raise _missing(path)


def _index(part: str, highest: int, path: list[str]) -> int:
    if not part.isdigit() or int(part) > highest:
        raise _missing(path)
    return int(part)


def _get(document: Any, path: list[str]) -> Any:
    for part in path:
        document = _step(document, part, path)
    return document


def _set(document: Any, path: list[str], value: Any, *, replace: bool) -> None:
    parent = _get(document, path[:-1])
    part = path[-1]
    if isinstance(parent, dict):
        parent[part] = value
    elif isinstance(parent, list) and replace:
        parent[_index(part, len(parent) - 1, path)] = value
    elif isinstance(parent, list):
        parent.insert(len(parent) if part == "-" else _index(part, len(parent), path), value)
    else:
        raise _missing(path)


def _remove(document: Any, path: list[str]) -> None:
    parent = _get(document, path[:-1])
    _get(parent, path[-1:])
    del parent[path[-1] if isinstance(parent, dict) else int(path[-1])]
