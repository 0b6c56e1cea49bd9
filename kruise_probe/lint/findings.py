"""A finding of lint: a rule, a position in a file, and a message that says what is wrong and what to do."""

from enum import StrEnum
from typing import Final, NamedTuple, Self


class Rule(StrEnum):
    """Identifies a kind of finding, with its summary. The names are part of the output formats.

    What `status` and `explain` find too has the name of their reason.
    """

    summary: str

    def __new__(cls, value: str, summary: str) -> Self:
        rule = str.__new__(cls, value)
        rule._value_, rule.summary = value, summary
        return rule

    UNREADABLE = "unreadable", "The file cannot be read, or is too large."
    SYNTAX = "syntax", "The file is not valid YAML."
    TEMPLATE = "template", "The file is a template, not YAML."
    DUPLICATE_KEY = "duplicate-key", "A mapping has the same key twice."
    UNKNOWN_KIND = "unknown-kind", "The kind or apiVersion of a PodProbeMarker is misspelled."
    UNKNOWN_FIELD = "unknown-field", "A PodProbeMarker has no such field."
    WRONG_TYPE = "wrong-type", "The value of a field has the wrong type."
    INVALID = "invalid", "A field breaks a rule of PodProbeMarkers."
    NO_EFFECT = "no-effect", "A field has no effect."
    NO_STATIC_VALUE = "no-static-value", "A deletion cost from the message has no static value."
    NO_MATCH = "no-match", "A pattern matches no message."
    COMMAND = "command", "A command cannot work, often because it needs a shell."
    NO_POD = "NoPods", "The selector matches no pod template of the files."
    NO_CONTAINER = "ContainerNotFound", "The selected pods have no such container."
    NO_PORT = "PortNameUnknown", "The container has no port of this name."
    READINESS_GATE = "GateUnwritten", "No probe writes the condition of a readiness gate."
    CONFLICT = "Conflict", "Two probes write the same label, annotation or condition."


MISSING: Final = (Rule.NO_POD, Rule.NO_CONTAINER, Rule.NO_PORT, Rule.READINESS_GATE)
"""Rules that something is missing in all files; not checked unless all files could be read."""

ACCEPTED: Final = frozenset(
    {*MISSING, Rule.CONFLICT, Rule.NO_EFFECT, Rule.NO_STATIC_VALUE, Rule.NO_MATCH, Rule.COMMAND}
)
"""Rules whose findings the API server accepts."""


class Position(NamedTuple):
    """Line and column in a file, both from 1. A column counts characters."""

    line: int
    column: int


class Finding(NamedTuple):
    """One finding. `path` is the field of the object; empty for a finding about the whole file."""

    file: str
    position: Position
    path: str
    rule: Rule
    message: str


MAX_TEXT: Final = 1000
"""Maximum characters of a message and of a path."""


def escaped(text: str) -> str:
    """Shorten `text`, and escape control characters and lone surrogates: it comes from a file."""
    text = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
