"""Messages of results: output of programs as a status holds it, and timeouts as Go prints them. Pure functions.

The daemon, the manager and `kruise-probe try` normalise with the same function, so all three give the same message.

Source: kubelet pkg/kubelet/prober; ECMA-48 for terminal sequences; Go time.Duration.String.
Differs: Kruise cuts a message at a byte and lets control characters through.
"""

import html
import re
from typing import Final

MAX_MESSAGE_BYTES: Final = 1024
"""Size limit of a message in UTF-8, as in Kruise."""

MAX_BODY_TEXT_BYTES: Final = 256
"""Size limit of what the message of a failed request takes from the body."""
_ENOUGH_BYTES: Final = 1024
_ENOUGH_MARKUP_BYTES: Final = 4 * 1024
"""So much of the body of a failed response is read at least, if it has no title."""
_TITLE: Final = re.compile(rb"<title[^<>]*+>([^<]*+)</title", re.IGNORECASE)

_SCANNED_BYTES: Final = 64 << 10
"""How much of each end of an output is searched for terminal sequences. It bounds the CPU time of one message."""

_END_BYTES: Final = 8 * MAX_MESSAGE_BYTES
"""How much of each end of the text is decoded. The rest would be cut off anyway."""

_CUT: Final = "…"
_CUT_BYTES: Final = len(_CUT.encode())

_HIDDEN: Final = bytes(set(range(0x21)) - {0x1B}) + b"\x7f"
"""Spaces and control bytes that begin no terminal sequence. A right-aligned table begins with many."""

_SEQUENCES = re.compile(
    rb"(?:"
    rb"(?:\x1b\[|\xc2\x9b)[0-?]*+[ -/]*+[@-~]?+"  # CSI: colours, the cursor
    rb"|(?:\x1b[\]PX^_]|\xc2[\x90\x98\x9d-\x9f])"  # OSC, DCS and other strings: titles, links
    rb"(?:[^\x00-\x1f\x7f\xc2]|\xc2(?![\x80-\x9f]))*+(?:\x07|\x1b\\|\xc2\x9c)?+"
    rb"|\x1b[ -/]*+[0-~]?+"  # all others, such as a character set, as `tput sgr0` prints it
    rb")++"
)
"""Terminal sequences in UTF-8, the last one perhaps without its end. No match is searched twice, so the time is linear.

No escape is left, so texts that are joined where a sequence was form no new one."""

_LINE_END = re.compile(r"\r\n?")
_BLANK = re.compile(r"[\t\v\f]")
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ufeff]")
"""Control characters but the line feed. They are not shown."""


def normalise_message(text: bytes | str) -> str:
    """At most 1,024 bytes of valid text, without terminal sequences and control characters, trimmed.

    Line ends stay, as line feeds. A tab becomes a space. Invalid UTF-8 becomes U+FFFD. Idempotent.
    """
    return _head(_shown(text), MAX_MESSAGE_BYTES).rstrip()


def command_message(exit_code: int, stdout: bytes, stderr: bytes) -> str:
    """The message of a command that has exited: stdout of a success, all that there is of a failure.

    For a failure that is stderr, then stdout on the next line. Of what does not fit, the beginning and the end stay: the last line
    of a traceback is the error.
    """
    if exit_code == 0:
        return normalise_message(stdout)
    first = _shown(stderr)
    second = _shown(stdout)
    if first and second:
        room = MAX_MESSAGE_BYTES - len("\n")
        of_first = max(room // 2, room - len(second.encode()))
        of_second = max(room // 2, room - len(first.encode()))
        return f"{_both_ends(first, of_first)}\n{_both_ends(second, of_second)}"
    if first or second:
        return _both_ends(first or second, MAX_MESSAGE_BYTES)
    message = f"exit code {exit_code}"
    if 128 < exit_code < 160:
        message += f" (signal {exit_code - 128})"
    return message


def body_text(body: bytes | bytearray) -> str:
    """What the body of a failed response says, in one line: the title of HTML, or the text."""
    title = _TITLE.search(body)
    if title is not None:
        text = html.unescape(title[1].decode(errors="replace"))
    else:
        text = normalise_message(bytes(body))
    return _head(normalise_message(" ".join(text.split())), MAX_BODY_TEXT_BYTES).rstrip()


def says_enough(body: bytes | bytearray) -> bool:
    """Whether more of the body of a failed response would not change `body_text`."""
    is_markup = bytes(body[:64]).lstrip().startswith(b"<")
    enough = _ENOUGH_MARKUP_BYTES if is_markup else _ENOUGH_BYTES
    return len(body) >= enough or _TITLE.search(body) is not None


def code_of(message: str) -> str:
    """The code with which a message begins, as `ExecStuck: …`. Other messages may begin with any text."""
    code, _, _ = message.partition(":")
    return code


def searched_part(message: str, *, failed: bool) -> str:
    """What part of an output the message is, if it is as long as one that was cut; empty for a whole output."""
    if len(message.encode()) < MAX_MESSAGE_BYTES - _CUT_BYTES:
        return ""
    both_ends = failed and _CUT in message
    part = "the beginning and the end" if both_ends else f"the first {MAX_MESSAGE_BYTES:,} bytes"
    return f"only {part} of the output are searched"


def _shown(output: bytes | str) -> str:
    """The text as it is shown. Of a long one only both ends."""
    if isinstance(output, str):
        output = output.encode(errors="ignore")
    output = _without_sequences(output.strip(_HIDDEN)).strip(_HIDDEN)
    if len(output) > 2 * _END_BYTES:
        output = output[:_END_BYTES] + output[-_END_BYTES:]
    text = output.decode(errors="replace")
    if not (text.isascii() and text.isprintable()):
        text = _LINE_END.sub("\n", text)
        text = _BLANK.sub(" ", text)
        text = _CONTROL.sub("", text)
    return text.strip()


def _without_sequences(output: bytes) -> bytes:
    """The output without terminal sequences. Of a long one only both ends."""
    if output.isascii() and b"\x1b" not in output:
        return output
    if len(output) <= 2 * _SCANNED_BYTES:
        return _SEQUENCES.sub(b"", output)
    head = output[:_SCANNED_BYTES]
    tail = output[-_SCANNED_BYTES:]
    return _SEQUENCES.sub(b"", head) + _SEQUENCES.sub(b"", tail)


def _head(text: str, size: int) -> str:
    return text.encode()[:size].decode(errors="ignore")


def _both_ends(text: str, size: int) -> str:
    """`text` in at most `size` bytes."""
    encoded = text.encode()
    if len(encoded) <= size:
        return text
    head = (size - _CUT_BYTES) // 2
    tail = size - _CUT_BYTES - head
    end = encoded[-tail:].decode(errors="ignore")
    return f"{_head(text, head)}{_CUT}{end}"


def duration(seconds: float) -> str:
    """A timeout as Go prints it: `1s`, `1m30s`, `1h0m0s`."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    if hours:
        return f"{hours}h{minutes}m{rest:g}s"
    if minutes:
        return f"{minutes}m{rest:g}s"
    return f"{rest:g}s"
