"""A finding of lint: a rule, a position in a file, and a message that says what is wrong and what to do."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple


class Rule(StrEnum):
    """Identifies a kind of finding. The names are part of the output formats."""

    UNREADABLE = "unreadable"
    SYNTAX = "syntax"
    TEMPLATE = "template"
    DUPLICATE_KEY = "duplicate-key"
    UNKNOWN_KIND = "unknown-kind"
    UNKNOWN_FIELD = "unknown-field"
    WRONG_TYPE = "wrong-type"
    INVALID = "invalid"
    NO_EFFECT = "no-effect"
    NO_STATIC_VALUE = "no-static-value"
    NO_MATCH = "no-match"
    COMMAND = "command"
    NO_POD = "NoPods"
    NO_CONTAINER = "ContainerNotFound"
    NO_PORT = "PortNameUnknown"
    READINESS_GATE = "GateUnwritten"
    CONFLICT = "Conflict"


MISSING: Final = (Rule.NO_POD, Rule.NO_CONTAINER, Rule.NO_PORT, Rule.READINESS_GATE)
"""Rules that something is missing in all files; not checked unless all files could be read."""

ACCEPTED: Final = frozenset(
    {*MISSING, Rule.CONFLICT, Rule.NO_EFFECT, Rule.NO_STATIC_VALUE, Rule.NO_MATCH, Rule.COMMAND}
)
"""Rules whose findings the API server accepts."""

SUMMARIES: Final[Mapping[Rule, str]] = {
    Rule.UNREADABLE: "The file cannot be read, or is too large.",
    Rule.SYNTAX: "The file is not valid YAML.",
    Rule.TEMPLATE: "The file is a template, not YAML.",
    Rule.DUPLICATE_KEY: "A mapping has the same key twice.",
    Rule.UNKNOWN_KIND: "The kind or apiVersion of a PodProbeMarker is misspelled.",
    Rule.UNKNOWN_FIELD: "A PodProbeMarker has no such field.",
    Rule.WRONG_TYPE: "The value of a field has the wrong type.",
    Rule.INVALID: "A field breaks a rule of PodProbeMarkers.",
    Rule.NO_EFFECT: "A field has no effect.",
    Rule.NO_STATIC_VALUE: "A deletion cost from the message has no static value.",
    Rule.NO_MATCH: "A pattern matches no message.",
    Rule.COMMAND: "A command cannot work, often because it needs a shell.",
    Rule.NO_POD: "The selector matches no pod template of the files.",
    Rule.NO_CONTAINER: "The selected pods have no such container.",
    Rule.NO_PORT: "The container has no port of this name.",
    Rule.READINESS_GATE: "No probe writes the condition of a readiness gate.",
    Rule.CONFLICT: "Two probes write the same label, annotation or condition.",
}


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
