"""JSON merge patch.

Source: RFC 7386.
Differs: nothing.
"""

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
