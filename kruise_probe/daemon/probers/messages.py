"""Text of a verdict: what a program printed, made fit for a status; and words the way Go prints them.

Source: kubelet pkg/kubelet/prober; Go strconv.Quote and time.Duration.String.
Differs: Kruise cuts a message at a byte and lets control characters through.
"""

import re
from typing import Final

MAX_MESSAGE_BYTES: Final = 1024
"""Of one message in UTF-8, as in Kruise."""

_ENOUGH_BYTES: Final = 8 * MAX_MESSAGE_BYTES
"""What is looked at of an output of megabytes, from its first byte that shows; the rest could only follow a cut."""

_HIDDEN: Final = bytes(range(0x21)) + b"\x7f"
"""Blanks and control bytes; a table that is aligned to the right begins with many."""

_BLANKS = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]+")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufeff]+")


def clean_message(text: bytes | str) -> str:
    """At most 1,024 bytes of valid text without control characters; line ends become a space.

    Bytes that are no UTF-8 become U+FFFD. White space around the whole is cut off, so that what
    `echo full` prints is `full`.
    """
    if isinstance(text, bytes):
        text = text.lstrip(_HIDDEN)[:_ENOUGH_BYTES].decode(errors="replace")
    else:
        text = text.lstrip(_HIDDEN.decode())[:_ENOUGH_BYTES]
    if not (text.isascii() and text.isprintable()):
        text = _CONTROLS.sub("", _BLANKS.sub(" ", text.strip()))
    text = text.strip()
    if len(text) * 4 <= MAX_MESSAGE_BYTES:
        return text
    encoded = text.encode()
    if len(encoded) <= MAX_MESSAGE_BYTES:
        return text
    return encoded[:MAX_MESSAGE_BYTES].decode(errors="ignore").rstrip()


_ESCAPES: Final = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f",
    "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip


def quote(text: bytes | str) -> str:
    """`text` in double quotes with everything escaped that does not print, as Go's `%q`; cut where no message reaches."""
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
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no UTF-8, as surrogateescape keeps it
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def duration(seconds: float) -> str:
    """`500ms`, `1s`, `1m30s`, `1h0m0s`: as Go prints a duration."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:g}ms"
    whole, fraction = divmod(round(seconds, 6), 60)
    text = f"{fraction:g}s"
    if not whole:
        return text
    hours, minutes = divmod(int(whole), 60)
    return f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}"
