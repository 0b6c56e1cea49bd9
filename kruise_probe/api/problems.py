"""What is wrong with an object: a rule that validation refuses, a finding of lint. Its message says what to write instead.
And typing errors in names: which name of several is meant.

Source: apimachinery pkg/util/validation/field/errors.go.
Differs: long values are shortened.
"""

import difflib
from collections.abc import Iterable
from enum import StrEnum
from itertools import islice
from math import inf
from typing import Any, Final, NamedTuple

MAX_ERRORS: Final = 20
"""Maximum errors in one response; one further entry says that there are more."""
MAX_SHOWN: Final = 128
"""Characters of a value or key that an error shows."""


class ErrorKind(StrEnum):
    """Strings of apimachinery's field.ErrorType."""

    REQUIRED = "Required value"
    INVALID = "Invalid value"
    NOT_SUPPORTED = "Unsupported value"
    DUPLICATE = "Duplicate value"
    FORBIDDEN = "Forbidden"
    TOO_MANY = "Too many"
    TOO_LONG = "Too long"

    @property
    def cause(self) -> str:
        """Reason in `Status.details.causes`, such as `FieldValueTooMany`."""
        return f"FieldValue{self.name.title().replace('_', '')}"


CEL_BOUNDS: Final = frozenset({ErrorKind.TOO_MANY, ErrorKind.TOO_LONG})
"""A stored marker that exceeds such a bound is not invalid: it works, or a limit of a pod leaves it out (`controllers.limits`)."""


class Problem(NamedTuple):
    """One thing that is wrong with an object.

    Attributes:
        path: the field, such as `spec.probes[0].probe.httpGet.host`; empty for the object as a whole.
        reason: for programs: an `ErrorKind` of a rule, or a `lint.findings.Rule`.
        message: what is wrong, and what to do.
        key: the entry of the map at `path`, if the problem is about one entry.
        value: what is wrong, if the message shows it.
    """

    path: str
    reason: StrEnum
    message: str
    key: str | None = None
    value: Any = None

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"

    @property
    def cause(self) -> dict[str, str]:
        """Entry for `Status.details.causes`, if the problem is a broken rule."""
        return {
            "reason": ErrorKind(self.reason).cause,
            "message": self.message,
            "field": self.path,
        }


def violation(
    path: str, kind: ErrorKind, detail: str, value: Any = None, *, key: str | None = None
) -> Problem:
    """A broken rule, in the API server's format: kind, value and what to write instead."""
    if isinstance(value, str):
        message = f'{kind}: "{shorten(value)}": {detail}'
    elif value is not None:
        message = f"{kind}: {value}: {detail}"
    else:
        message = f"{kind}: {detail}"
    return Problem(path, kind, message, key, value)


def first_errors(errors: Iterable[Problem]) -> list[Problem]:
    """Return the first `MAX_ERRORS` errors; if there are more, one further entry says so."""
    rest = iter(errors)
    first = list(islice(rest, MAX_ERRORS))
    if next(rest, None) is not None:
        more = "more errors are not listed; correct the listed ones first"
        first.append(violation("spec", ErrorKind.TOO_MANY, more))
    return first


def shorten(text: str, most: int = MAX_SHOWN) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


MAX_COMPARED: Final = 320
"""Longest name that is compared, a little more than the longest valid key: the time grows with its square."""
MAX_DIFFERENT: Final = 3
"""Letters in which a typing error differs from its name, counted in both: two for a wrong letter or a swap."""
MIN_RATIO: Final = 0.6


def did_you_mean(wrong: str, names: Iterable[str]) -> str:
    """` Did you mean 'x'?` as `closest_name`; otherwise empty."""
    close = closest_name(wrong, names)
    return f" Did you mean {close!r}?" if close else ""


def closest_name(wrong: str, names: Iterable[str]) -> str:
    """The name that differs least from `wrong`, only by a typing error or in case; empty if there is none or several."""
    close: dict[float, list[str]] = {}
    for name in names:
        letters = _different_letters(wrong.lower(), name.lower())
        if name != wrong and letters <= MAX_DIFFERENT:
            close.setdefault(letters, []).append(name)
    if not close:
        return ""
    closest, *others = close[min(close)]
    return "" if others else closest


def _different_letters(left: str, right: str) -> float:
    """Infinite if it is no typing error."""
    domain, _, word = left.rpartition("/")
    other_domain, _, other_word = right.rpartition("/")
    if domain == other_domain:  # it says nothing
        left = word
        right = other_word
    if left == right:
        return 0
    is_other_number = left.strip("0123456789") == right.strip("0123456789")  # v1 and v2
    if is_other_number or len(left) > MAX_COMPARED:
        return inf
    ratio = difflib.SequenceMatcher(None, left, right, autojunk=False).ratio()
    if ratio < MIN_RATIO:
        return inf
    return round((1 - ratio) * (len(left) + len(right)))
