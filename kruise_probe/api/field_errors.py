"""Errors of a field, in the API server's format: path, type, value and what to write instead.

Source: apimachinery pkg/util/validation/field/errors.go.
Differs: long values are shortened.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum
from itertools import islice
from typing import Any, Final, NamedTuple

MAX_ERRORS: Final = 20
"""Maximum errors in one response; one further entry says that there are more."""
MAX_SHOWN: Final = 128
"""Characters of a value or key that an error shows."""
MORE_ERRORS: Final = "more errors are not listed; correct these first"


class ErrorKind(StrEnum):
    """Strings of apimachinery's field.ErrorType."""

    REQUIRED = "Required value"
    INVALID = "Invalid value"
    NOT_SUPPORTED = "Unsupported value"
    DUPLICATE = "Duplicate value"
    FORBIDDEN = "Forbidden"
    TOO_MANY = "Too many"
    TOO_LONG = "Too long"


_CAUSES: Final = {
    ErrorKind.REQUIRED: "FieldValueRequired",
    ErrorKind.INVALID: "FieldValueInvalid",
    ErrorKind.NOT_SUPPORTED: "FieldValueNotSupported",
    ErrorKind.DUPLICATE: "FieldValueDuplicate",
    ErrorKind.FORBIDDEN: "FieldValueForbidden",
    ErrorKind.TOO_MANY: "FieldValueTooMany",
    ErrorKind.TOO_LONG: "FieldValueTooLong",
}


class FieldError(NamedTuple):
    """A violated rule.

    Attributes:
        path: the field, such as `spec.probes[0].probe.httpGet.host`.
        key: the entry of the map at `path`, if the error is about one entry.
    """

    path: str
    kind: ErrorKind
    detail: str
    value: Any = None
    key: str | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"

    @property
    def cause(self) -> dict[str, str]:
        """Entry for `Status.details.causes`."""
        return {"reason": _CAUSES[self.kind], "message": self.message, "field": self.path}

    @property
    def message(self) -> str:
        if self.value is None:
            return f"{self.kind}: {self.detail}"
        value = f'"{shorten(self.value)}"' if isinstance(self.value, str) else self.value
        return f"{self.kind}: {value}: {self.detail}"


def required(path: str, detail: str) -> FieldError:
    return FieldError(path, ErrorKind.REQUIRED, detail)


def invalid(path: str, value: Any, detail: str, *, key: str | None = None) -> FieldError:
    return FieldError(path, ErrorKind.INVALID, detail, value, key)


def not_supported(path: str, value: str, detail: str) -> FieldError:
    return FieldError(path, ErrorKind.NOT_SUPPORTED, detail, value)


def forbidden(path: str, detail: str, *, key: str | None = None) -> FieldError:
    return FieldError(path, ErrorKind.FORBIDDEN, detail, key=key)


def check_items(path: str, items: Collection[object], most: int) -> Iterator[FieldError]:
    """Report more than `most` items."""
    if len(items) > most:
        yield FieldError(path, ErrorKind.TOO_MANY, f"must have at most {most} items", len(items))


def check_length(path: str, text: str, most: int) -> Iterator[FieldError]:
    """Report more than `most` characters."""
    if len(text) > most:
        yield FieldError(path, ErrorKind.TOO_LONG, f"may not be more than {most} characters")


def check_unique(path: str, names: Iterable[str | None], detail: str) -> Iterator[FieldError]:
    """Report duplicate names. `path` has a `{}` for the index; None is ignored."""
    seen: Counter[str] = Counter()
    for index, name in enumerate(names):
        if name is None:
            continue
        if seen[name]:
            yield FieldError(path.format(index), ErrorKind.DUPLICATE, detail, name)
        seen[name] += 1


def first_errors(errors: Iterable[FieldError]) -> list[FieldError]:
    """Return the first `MAX_ERRORS` errors; if there are more, one further entry says so."""
    rest = iter(errors)
    first = list(islice(rest, MAX_ERRORS))
    if next(rest, None) is not None:
        first.append(FieldError("spec", ErrorKind.TOO_MANY, MORE_ERRORS))
    return first


def shorten(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
