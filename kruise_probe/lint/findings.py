"""The findings of lint, and the report of them as text, JSON or SARIF.

A finding is a rule, a position in a file, and a message that says what is wrong and what to do.

Source: SARIF 2.1.0 (OASIS); GitHub's subset of it for code scanning.
"""

import json
import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote

from kruise_probe import __version__
from kruise_probe.api.problems import shorten
from kruise_probe.api.v1alpha1 import PodProbeMarker


class Rule(StrEnum):
    """Identifies a kind of finding, with its summary. The names are part of the output formats.

    What `status` and `explain` find too has the name of their reason.
    """

    summary: str

    def __new__(cls, value: str, summary: str) -> Self:
        rule = str.__new__(cls, value)
        rule._value_ = value
        rule.summary = summary
        return rule

    UNREADABLE = "unreadable", "The file cannot be read, or is too large."
    SYNTAX = "syntax", "The file is not valid YAML."
    TEMPLATE = "template", "The file is a template, not YAML."
    DUPLICATE_KEY = "duplicate-key", "A mapping has the same key twice."
    UNKNOWN_KIND = "unknown-kind", "The kind or apiVersion of a PodProbeMarker is misspelled."
    UNKNOWN_FIELD = "unknown-field", "A PodProbeMarker has no such field."
    WRONG_TYPE = "wrong-type", "The value of a field has the wrong type."
    INVALID = "InvalidSpec", "A field breaks a rule of PodProbeMarkers."
    NO_EFFECT = "FieldsWithoutEffect", "A field has no effect."
    NO_STATIC_VALUE = "no-static-value", "A deletion cost from the message has no static value."
    TEMPLATE_KEY = "removed-template-key", "A policy removes a key that the pod template sets."
    NOT_EXCLUSIVE = "not-exclusive", "A pod template writes a key of a role, or lacks its group."
    OWNER_SELECTOR = "owner-selector", "A policy takes a pod out of the selector of its workload."
    COST_IGNORED = "cost-ignored", "The workload ignores the deletion cost."
    HIDDEN_EXIT = "hidden-exit-code", "A pipe hides the exit code of the program before it."
    COMMAND = "command", "A command cannot work, often because it needs a shell."
    NO_POD = "NoPods", "The selector matches no pod template of the files."
    NO_CONTAINER = "ContainerNotFound", "The selected pods have no such container."
    NO_PORT = "PortNameUnknown", "The container has no port of this name."
    READINESS_GATE = "GateUnwritten", "No probe writes the condition of a readiness gate."
    TOO_MANY_MARKERS = "TooManyMarkers", "Too many PodProbeMarkers select the same pods."
    TOO_MANY_PROBES = "TooManyProbes", "The PodProbeMarkers of the same pods have too many probes."
    TOO_MANY_KEYS = "TooManyKeys", "The PodProbeMarkers of the same pods mention too many keys."
    CONFLICT = "ClaimedByAnother", "Two probes write the same label, annotation or condition."


MISSING: Final = (Rule.NO_POD, Rule.NO_CONTAINER, Rule.NO_PORT, Rule.READINESS_GATE)
"""Rules that something is missing in all files; not checked unless all files could be read."""

ACCEPTED: Final = frozenset(
    {
        *MISSING,
        Rule.TOO_MANY_MARKERS,
        Rule.TOO_MANY_PROBES,
        Rule.TOO_MANY_KEYS,
        Rule.CONFLICT,
        Rule.NO_EFFECT,
        Rule.NO_STATIC_VALUE,
        Rule.TEMPLATE_KEY,
        Rule.NOT_EXCLUSIVE,
        Rule.OWNER_SELECTOR,
        Rule.COST_IGNORED,
        Rule.HIDDEN_EXIT,
        Rule.COMMAND,
    }
)
"""Rules whose findings the API server accepts."""


class Position(NamedTuple):
    """Line and column in a file, both from 1. A column counts characters."""

    line: int
    column: int


class Finding(NamedTuple):
    """One finding. `path` is the field of the object; empty for a finding about the whole file. `file` is set when the file is known."""

    position: Position
    path: str
    rule: Rule
    message: str
    file: str = ""


MAX_TEXT: Final = 1000
"""Maximum characters of a message and of a path."""


def escaped(text: str) -> str:
    """Shorten `text`, and escape control characters and lone surrogates: it comes from a file."""
    return "".join(map(_printable, shorten(text, MAX_TEXT)))


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()


class LintReport(NamedTuple):
    """The findings in the order of the files, and what was checked.

    Attributes:
        templates: the number of pod templates.
        unclear_file: the first file whose objects are not all known. Because of it, nothing is reported as missing.
    """

    findings: tuple[Finding, ...]
    files: int
    markers: tuple[PodProbeMarker, ...]
    templates: int
    unclear_file: str | None

    @property
    def refused(self) -> tuple[Finding, ...]:
        """What an API server would refuse, and what cannot be read."""
        return tuple(finding for finding in self.findings if finding.rule not in ACCEPTED)


JSON_VERSION: Final = 1
"""Within a version, fields of the JSON output may be added, but do not change."""

_SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_DOCUMENTATION: Final = "https://github.com/kruise-probe/kruise-probe/blob/main/docs/lint.md"


def as_text(report: LintReport, paint: Callable[[str], str] = str) -> str:
    """One line for each finding: `file:line:column: path: message [rule]`, with the rule in the colour of `paint`."""
    lines = []
    for finding in report.findings:
        line, column = finding.position
        file = escaped(finding.file)
        rule = paint(finding.rule)
        lines.append(f"{file}:{line}:{column}: {_with_path(finding)} [{rule}]\n")
    return "".join(lines)


def _with_path(finding: Finding) -> str:
    if not finding.path:
        return finding.message
    return f"{finding.path}: {finding.message}"


def summary(report: LintReport) -> str:
    """What was checked, for standard error."""
    findings = _counted(len(report.findings), "finding")
    files = _counted(report.files, "file")
    markers = _counted(len(report.markers), "PodProbeMarker")
    templates = _counted(report.templates, "pod template")
    checked = f"{findings.capitalize()} in {files} ({markers}, {templates})"
    if not report.markers:
        return checked
    if not report.templates:
        return f"{checked}\nNot checked without pod templates: selectors, containers, ports and readiness gates"
    if report.unclear_file is None:
        return checked
    rules = ", ".join(MISSING)
    return (
        f"{checked}\nNot checked: {rules}:\nthe objects of {report.unclear_file} are not all known"
    )


def _counted(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun}"
    return f"{number or 'no'} {noun}s"


def as_json(report: LintReport) -> str:
    """ASCII only, so that a file name that is not UTF-8 is no error."""
    document = {
        "version": JSON_VERSION,
        "files": report.files,
        "markers": len(report.markers),
        "podTemplates": report.templates,
        "findings": [
            {
                "file": finding.file,
                **finding.position._asdict(),
                "path": finding.path,
                "rule": finding.rule,
                "message": finding.message,
            }
            for finding in report.findings
        ],
        "notChecked": [] if report.unclear_file is None else list(MISSING),
    }
    return json.dumps(document, indent=2) + "\n"


def as_sarif(report: LintReport) -> str:
    rules = list(Rule)
    driver = {
        "name": "kruise-probe",
        "version": __version__,
        "informationUri": _DOCUMENTATION,
        "rules": [
            {
                "id": rule,
                "shortDescription": {"text": rule.summary},
                "helpUri": _DOCUMENTATION,
            }
            for rule in rules
        ],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, rules) for finding in report.findings],
    }
    document = {
        "$schema": _SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [run],
    }
    return json.dumps(document, indent=2) + "\n"


def _result(finding: Finding, rules: list[Rule]) -> dict[str, Any]:
    line, column = finding.position
    return {
        "ruleId": finding.rule,
        "ruleIndex": rules.index(finding.rule),
        "level": "error",
        "message": {"text": _with_path(finding)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(finding.file)},
                    "region": {"startLine": line, "startColumn": column},
                }
            }
        ],
    }


def _uri(name: str) -> str:
    """Relative to the current folder, which code scanning takes as the repository; absolute if outside of it."""
    path = Path(os.path.abspath(name))
    current = Path.cwd()
    if path.is_relative_to(current):
        return quote(os.fsencode(path.relative_to(current)))
    return path.as_uri()
