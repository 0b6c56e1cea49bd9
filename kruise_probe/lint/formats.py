"""The report as text, JSON or SARIF.

Source: SARIF 2.1.0 (OASIS); GitHub's subset of it for code scanning.
"""

import json
import os
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from kruise_probe import version
from kruise_probe.lint.findings import MISSING, Finding, Rule, escaped
from kruise_probe.lint.linter import LintReport

JSON_VERSION: Final = 1
"""Within a version, fields of the JSON output may be added, but do not change."""

_SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_DOCUMENTATION: Final = "https://github.com/kruise-probe/kruise-probe/blob/main/docs/lint.md"


def as_text(report: LintReport) -> str:
    """One line for each finding: `file:line:column: path: message [rule]`."""
    return "".join(
        f"{escaped(each.file)}:{each.position.line}:{each.position.column}: "
        f"{each.path}{': ' if each.path else ''}{each.message} [{each.rule}]\n"
        for each in report.findings
    )


def summary(report: LintReport) -> str:
    """What was checked, for standard error."""
    findings = _counted(len(report.findings), "finding").capitalize()
    checked = (
        f"{findings} in {_counted(report.files, 'file')} ({_counted(len(report.markers), 'PodProbeMarker')}, "
        f"{_counted(report.templates, 'pod template')})"
    )
    if report.unclear_file is None or not report.markers:
        return checked
    rules = ", ".join(MISSING)
    return f"{checked}\nNot checked: {rules}, as the objects of {report.unclear_file} are not all known"


def _counted(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


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
                "line": finding.position.line,
                "column": finding.position.column,
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
        "version": version.TEXT,
        "informationUri": _DOCUMENTATION,
        "rules": [
            {
                "id": each,
                "shortDescription": {"text": each.summary},
                "helpUri": _DOCUMENTATION,
            }
            for each in rules
        ],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(each, rules) for each in report.findings],
    }
    document = {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2) + "\n"


def _result(finding: Finding, rules: list[Rule]) -> dict[str, Any]:
    text = f"{finding.path}: {finding.message}" if finding.path else finding.message
    line, column = finding.position
    return {
        "ruleId": finding.rule,
        "ruleIndex": rules.index(finding.rule),
        "level": "error",
        "message": {"text": text},
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
