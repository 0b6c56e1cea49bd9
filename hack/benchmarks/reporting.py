"""Figures as JSON lines (stdout); progress and a table (stderr)."""

import asyncio
import json
import platform
import sys
import time
from collections.abc import Mapping
from statistics import median
from typing import Any

import msgspec

Row = dict[str, Any]

_LOOPS = 2_000_000


def progress(text: str) -> None:
    print(text, file=sys.stderr)


def emit(row: Mapping[str, Any]) -> None:
    """Prints one JSON line at once, so that a run that is interrupted keeps its figures."""
    print(json.dumps(row), flush=True)


def table(rows: list[Row]) -> None:
    """Prints all figures of a run as a Markdown table."""
    columns = list(
        dict.fromkeys(key for row in rows for key in row if key not in ("benchmark", "python"))
    )
    cells = [columns, ["---"] * len(columns)]
    cells += [[_cell(row.get(column)) for column in columns] for row in rows]
    for line in cells:
        print(
            "| " + " | ".join(line) + " |",
            file=sys.stderr,
        )


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
    """One row for the same rows of several runs: each number is the median."""
    merged: list[Row] = []
    for same in zip(*runs, strict=True):
        row = dict(same[0])
        for key in row:
            values = [each.get(key) for each in same]
            if all(isinstance(value, int | float) for value in values):
                row[key] = round(median(values), 4)
        merged.append(row)
    return merged


async def in_own_process(module: str, *arguments: int) -> Row:
    """Run a benchmark of this package as a program, and return the row that it prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *map(str, arguments), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    row: Row = json.loads(output)
    return row


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of `values` lie."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def machine_speed() -> Row:
    """Interpreter and JSON speed on one processor, so that runs on different machines compare as ratios."""
    wall = time.perf_counter()
    cpu = time.process_time()
    total = 0
    for number in range(_LOOPS):
        total += number & 7
    loop_ns = (time.process_time() - cpu) / _LOOPS * 1e9
    document = msgspec.json.encode({f"key-{n}": ["value"] * 8 for n in range(400)})
    decoding = time.process_time()
    for _ in range(200):
        msgspec.json.decode(document)
    decode_mb = len(document) * 200 / (time.process_time() - decoding) / 1e6
    busy = 1 - (time.process_time() - cpu) / (time.perf_counter() - wall)
    return {
        "benchmark": "machine",
        "python": platform.python_version(),
        "python_loop_ns": round(loop_ns, 1),
        "json_mb_per_second": round(decode_mb),
        "taken_by_others": round(max(busy, 0.0), 2),
    }
