"""Messages of results: output of programs, cleaned for a status field, and values formatted as in Go.

Source: kubelet pkg/kubelet/prober; Go strconv.Quote and time.Duration.String.
Differs: Kruise cuts a message at a byte and lets control characters through.
"""

import re
from typing import Final

MAX_MESSAGE_BYTES: Final = 1024
"""Size limit of a message in UTF-8, as in Kruise."""

_ENOUGH_BYTES: Final = 8 * MAX_MESSAGE_BYTES
"""How much of an output is decoded, from its first visible byte. The rest would be truncated anyway."""

LINE_END: Final = "\x1e"
"""End of the first line in a message that is not published yet. No line feed: messages of Kruise's daemon contain
these, and are published again as they were read."""

_HIDDEN: Final = bytes(range(0x21)) + b"\x7f"
"""Spaces and control bytes. A right-aligned table begins with many."""

_BLANKS = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]+")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufeff]+")


def clean_message(text: bytes | str) -> str:
    """At most 1,024 bytes of valid text without control characters. Line ends become a space.

    Invalid UTF-8 becomes U+FFFD. Surrounding whitespace is removed, so the output of `echo full` is `full`.
    """
    return one_line(clean_output(text))


def one_line(message: str) -> str:
    """The message of `clean_output` in one line, as it is published."""
    return message.replace(LINE_END, " ")


def first_line_length(message: str) -> int | None:
    """Characters before the line end in a message of `clean_output`; None if it has one line."""
    return message.index(LINE_END) if LINE_END in message else None


def with_first_line(message: str, length: int | None) -> str:
    """The message of `clean_output` for a published message and the length of its first line."""
    if length is None or length <= 0 or message[length : length + 1] != " ":
        return message
    return f"{message[:length]}{LINE_END}{message[length + 1 :]}"


def clean_output(text: bytes | str) -> str:
    """Like `clean_message`, but the end of the first line is `LINE_END`.

    A value without a pattern is the first line of the message (`fromMessage`).
    """
    if isinstance(text, bytes):
        text = text.lstrip(_HIDDEN)[:_ENOUGH_BYTES].decode(errors="replace")
    else:
        text = text.lstrip(_HIDDEN.decode())[:_ENOUGH_BYTES]
    if not (text.isascii() and text.isprintable()):
        first, line_end, rest = _first_line(text.strip())
        text = f"{_visible(first)}{line_end}{_visible(rest)}"
    text = text.strip()
    if len(text) * 4 <= MAX_MESSAGE_BYTES:
        return text
    encoded = text.encode()
    if len(encoded) <= MAX_MESSAGE_BYTES:
        return text
    return encoded[:MAX_MESSAGE_BYTES].decode(errors="ignore").rstrip()


def _visible(text: str) -> str:
    return _CONTROLS.sub("", _BLANKS.sub(" ", text))


def _first_line(text: str) -> tuple[str, str, str]:
    """The first line, its end as `LINE_END` or nothing, and the rest."""
    for run in _BLANKS.finditer(text):
        if run[0].strip("\t\v\f"):
            return text[: run.start()], LINE_END, text[run.end() :]
    return text, "", ""


_ESCAPES: Final = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f",
    "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip


def quote(text: bytes | str) -> str:
    """`text` in double quotes with unprintable characters escaped, as Go's `%q`; truncated to the size of a message."""
    text = text[:MAX_MESSAGE_BYTES]
    if isinstance(text, bytes):
        text = text.decode(errors="surrogateescape")
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if escape := _ESCAPES.get(character):
        return escape
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # an invalid UTF-8 byte, as surrogateescape encodes it
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def duration(seconds: float) -> str:
    """A duration as Go prints it: `500ms`, `1s`, `1m30s`, `1h0m0s`."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:g}ms"
    whole, fraction = divmod(round(seconds, 6), 60)
    text = f"{fraction:g}s"
    if not whole:
        return text
    hours, minutes = divmod(int(whole), 60)
    return f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}"
