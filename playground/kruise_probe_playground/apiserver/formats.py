"""Strings that built-in kinds decode into values: times, quantities, bytes. They are stored in Go's form.

Source: apimachinery pkg/apis/meta/v1/{time,micro_time}.go, pkg/api/resource/quantity.go; encoding/base64.
Differs: quantities have at most nine digits after the point, as in Go, but no upper limit.
"""

import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import ROUND_UP, Decimal
from typing import Any, Final

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?")
_LIMIT: Final = Decimal("1e19")
_DECIMAL = {letter: 3 * (place - 3) for place, letter in enumerate("num kMGTPE") if letter != " "}
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
    power = int(suffix[1:]) if _is_exponent(suffix) else _DECIMAL.get(suffix, 0)
    try:
        value = number * _BINARY[suffix] if suffix in _BINARY else number.scaleb(power)
    except ArithmeticError:
        value = _LIMIT
    if abs(value) >= _LIMIT:
        raise ValueError("this server stores only quantities below 1e19")
    return value


def _is_exponent(suffix: str) -> bool:
    return len(suffix) > 1 and suffix[0] in "eE"


def _quantity(text: Any) -> str:
    value, suffix = amount(text), _QUANTITY.fullmatch(str(text))[2] or ""  # type: ignore[index]
    value = value.quantize(Decimal("1e-9"), ROUND_UP)
    if not value:
        return "0"
    if suffix in _BINARY and value == value.to_integral() and abs(value) >= 1024:
        units = [each for each in _BINARY if not value % _BINARY[each]]
        return f"{value / _BINARY[units[-1]]:.0f}{units[-1]}" if units else f"{value:.0f}"
    if _is_exponent(suffix):
        powers = {f"e{power}": power for power in (-9, -6, -3, 0, 3, 6, 9, 12, 15, 18)}
    else:
        powers = {"": 0, **_DECIMAL}
    whole = {each: power for each, power in powers.items() if not value.scaleb(-power) % 1}
    best = max(whole, key=lambda each: whole[each])
    return f"{value.scaleb(-whole[best]):.0f}" + ("" if best == "e0" else best)


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
