"""Durations in Go's notation.

Source: Go time.ParseDuration.
Differs: negative durations are invalid.
"""

import re
from typing import Final

_UNITS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_TERM = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")


def parse_duration(text: str) -> float | None:
    """Parse a Go duration into seconds; None if it is invalid."""
    text = text.removeprefix("+")
    if text == "0":
        return 0.0
    seconds, position = 0.0, 0
    while position < len(text):
        term = _TERM.match(text, position)
        if term is None:
            return None
        seconds += float(term[1]) * _UNITS[term[2]]
        position = term.end()
    return seconds if text else None
