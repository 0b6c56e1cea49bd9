"""Figures as JSON lines for programs (stdout), and progress and a table for people (stderr)."""

import json
import platform
import sys
from collections.abc import Mapping
from statistics import median
from typing import Any

from rich.console import Console
from rich.markup import escape

Row = dict[str, Any]

_console = Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """Progress."""
    _console.print(f"[dim]{escape(text)}[/dim]")


def emit(row: Mapping[str, Any]) -> None:
    """One figure, as one JSON line, at once: a run that breaks off has said what it measured."""
    print(json.dumps(row), flush=True)


def table(rows: list[Row], *, hide: tuple[str, ...] = ("benchmark", "run", "python")) -> None:
    """All figures of a run in Markdown, ready to be pasted into a document."""
    columns = list(dict.fromkeys(key for row in rows for key in row if key not in hide))
    cells = [columns, ["---"] * len(columns)]
    cells += [[_cell(row.get(column)) for column in columns] for row in rows]
    for line in cells:
        print("| " + " | ".join(line) + " |", file=sys.stderr)


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case float():
            return f"{value:.4g}" if abs(value) < 100 else f"{value:.0f}"
        case Mapping():
            return ", ".join(f"{count} {name}" for name, count in value.items()) or "none"
        case _:
            return str(value)


def medians(runs: list[list[Row]]) -> list[Row]:
    """The rows of several runs of the same benchmark as one, numbers by their median."""
    merged: list[Row] = []
    for same in zip(*runs, strict=True):
        row = dict(same[0])
        for key in row:
            values = [each.get(key) for each in same]
            if all(isinstance(value, int | float) for value in values):
                row[key] = round(median(values), 4)
        merged.append(row)
    return merged


def interpreter() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}"


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of the sorted `values` lie."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
