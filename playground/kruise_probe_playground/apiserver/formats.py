"""Strings that built-in kinds decode into values: times, quantities, bytes. Times are stored in Go's form.

Source: apimachinery pkg/apis/meta/v1/{time,micro_time}.go, pkg/api/resource/quantity.go; encoding/base64.
Differs: quantities are stored as they are sent, and must be below 1e19.
"""

import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?")
_LIMIT: Final = Decimal("1e19")
_DECIMAL = {letter: 3 * place for place, letter in enumerate((*"num", "", *"kMGTPE"), start=-3)}
_BINARY: Final[Mapping[str, int]] = {
    f"{letter}i": 1024**place for place, letter in enumerate("KMGTPE", start=1)
}


def _time(text: str) -> str:
    return _parsed(text).strftime("%Y-%m-%dT%H:%M:%SZ")


def _micro_time(text: str) -> str:
    if not re.search(r"\.\d{6}[Z+-]", text):
        raise ValueError(f'parsing time "{text}": expected six digits after the seconds')
    return _parsed(text).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _parsed(text: str) -> datetime:
    if not _TIME.fullmatch(text):
        raise ValueError(f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00"')
    return datetime.fromisoformat(text).astimezone(UTC)


def amount(quantity: Any) -> Decimal:
    match = _QUANTITY.fullmatch(str(quantity))
    if match is None:
        raise ValueError("quantities must match the regular expression of Kubernetes")
    number, suffix = Decimal(match[1]), str(match[2] or "")
    try:
        if suffix in _BINARY:
            value = number * _BINARY[suffix]
        else:
            power = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
            value = number.scaleb(power)
    except ArithmeticError:
        value = _LIMIT
    if abs(value) >= _LIMIT:
        raise ValueError("this server stores only quantities below 1e19")
    return value


def _quantity(text: Any) -> str:
    amount(text)
    return str(text)


def _base64(text: str) -> str:
    try:
        b64decode(text, validate=True)
    except ValueError as error:
        raise ValueError("illegal base64 data") from error
    return text


_META: Final = "io.k8s.apimachinery.pkg"
DECODERS: Final[Mapping[str, Callable[[Any], str]]] = {
    f"{_META}.apis.meta.v1.Time": _time,
    f"{_META}.apis.meta.v1.MicroTime": _micro_time,
    f"{_META}.api.resource.Quantity": _quantity,
    "byte": _base64,
}
"""By the name of a definition, or by a format. They raise ValueError."""
