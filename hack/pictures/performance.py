"""Charts of the figures in docs/performance.md."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pictures.drawing import box, svg, text

PAGE = Path(__file__).resolve().parents[2] / "docs" / "performance.md"


class Chart(NamedTuple):
    title: str
    unit: str
    rows: tuple[tuple[str, str], ...]
    """The label in the chart, and how its row in the page begins."""


CHARTS = (
    Chart("Time for 5,000 pods", "s", (
        ("spec on all nodes", "A marker is created"), ("first marks", "First results"),
        ("all results change", "All 5,000"), ("marker deleted*", "The marker is deleted"),
    )),
    Chart("CPU", "ms", (
        ("manager, a pod write", "Manager: CPU"), ("daemon, a probe", "Daemon and containerd: CPU"),
    )),
    Chart("Memory", "MB", (
        ("manager, 5,000 pods", "Manager: memory with"), ("daemon, 300 probes/s", "Daemon: memory"),
    )),
    Chart("From a result to the label", "ms", ()),
)  # fmt: skip
LATENCY = ("From a stored result to the label, median", "99 %")


def rows_of(page: str) -> dict[str, list[str]]:
    """The cells of each row of the page's tables, by the first cell."""
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return {cells[0]: cells[1:] for cells in rows}


def number(cell: str) -> float:
    """The first number of a cell; of a range the last."""
    found = re.findall(r"[\d,.]+", cell.partition(", ")[0])
    return float(found[-1].replace(",", ""))


def performance() -> str:
    rows = rows_of(PAGE.read_text())
    parts: list[str] = []
    for index, chart in enumerate(CHARTS):
        x, y = 20 + 470 * (index % 2), 20 + 235 * (index // 2)
        parts += [
            box(x, y, 450, 220, "soft"),
            text(x + 16, y + 28, f"{chart.title}, {chart.unit}", "title"),
        ]
        if chart.rows:
            bars = [
                (
                    label,
                    [
                        number(each)
                        for each in next(
                            cells for key, cells in rows.items() if key.startswith(row)
                        )
                    ],
                )
                for label, row in chart.rows
            ]
            names = ("kruise-probe", "Kruise")
        else:
            counts = rows["Results per second"]
            values = [[number(each) for each in rows[name]] for name in LATENCY]
            bars = [
                (f"at {count}/s", [median, slow])
                for count, median, slow in zip(counts, *values, strict=True)
            ]
            names = ("median", "99 %")
        parts += list(_bars(x + 16, y + 56, bars, 156 / len(bars)))
        parts += [
            text(x + 434, y + 28, names[1], "muted end other"),
            text(x + 434 - 8 * len(names[1]) - 16, y + 28, names[0], "muted end ours"),
        ]
    parts.append(
        text(20, 494, "* Kruise leaves the marks on the pods; kruise-probe removes them.", "muted")
    )
    return svg(960, 510, "Results of the benchmarks, kruise-probe and Kruise", *parts)


def _bars(x: float, y: float, bars: list[tuple[str, list[float]]], step: float) -> Iterator[str]:
    widest = max(max(values) for _, values in bars)
    for row, (label, values) in enumerate(bars):
        top = y + row * step
        yield text(x, top + 15, label)
        for index, (value, style) in enumerate(zip(values, ("ours", "other"), strict=True)):
            width = max(value / widest * 200, 2)
            yield f'<rect x="{x + 160:g}" y="{top + index * 15:g}" width="{width:g}" height="12" rx="2" class="{style}"/>'
            yield text(x + 166 + width, top + 11 + index * 15, f"{value:g}", "muted")
