"""Drawings of figures for the documentation: from the JSON lines of `hack/bench`, SVG in a few lines of its own."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.reporting import Row

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 36, 48, 56
COLOURS = ("#2f6db3", "#d1662b", "#3f8f4f", "#8a5aa8")

Points = Sequence[tuple[float, float]]


class Chart(NamedTuple):
    """One drawing: `series` by name, over an x axis of powers; the y axis starts at 0."""

    file: str
    title: str
    x: str
    y: str
    series: Mapping[str, Points]


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """Writes every chart that `rows` have figures for; of repeated runs the medians."""
    written: list[Path] = []
    for chart in _charts(rows):
        if any(chart.series.values()):
            path = folder / chart.file
            path.write_text(svg(chart))
            written.append(path)
    return written


def read(files: Iterable[Path]) -> list[Row]:
    return [json.loads(line) for file in files for line in file.read_text().splitlines() if line]


def _charts(rows: list[Row]) -> list[Chart]:
    def points(wanted: Callable[[Row], bool], x: str, y: str) -> Points:
        found: dict[float, list[float]] = {}
        for row in rows:
            if wanted(row) and row.get(x) is not None and row.get(y) is not None:
                found.setdefault(row[x], []).append(row[y])
        return [(at, median(values)) for at, values in sorted(found.items())]

    def of(benchmark: str, label: str = "") -> Callable[[Row], bool]:
        return lambda row: row["benchmark"] == benchmark and row.get("label", "") == label

    def labels(benchmark: str) -> list[str]:
        return list(dict.fromkeys(row["label"] for row in rows if row["benchmark"] == benchmark))

    def steady(label: str) -> Callable[[Row], bool]:
        return lambda row: of("daemon", label)(row) and row.get("probes_per_second") is not None

    return [
        Chart(
            "performance-time.svg",
            "Manager: CPU from cold to planned",
            "pods",
            "µs per pod",
            {"list and decode": points(of("scale"), "pods", "list_us_per_pod"),
             "all, down to a plan for each node": points(of("scale"), "pods", "us_per_pod")},
        ),
        Chart(
            "performance-memory.svg",
            "Manager: memory of the caches",
            "pods",
            "KB per pod",
            {"pods, nodes and NodePodProbes": points(of("scale"), "pods", "kb_per_pod")},
        ),
        Chart(
            "performance-probes.svg",
            "Daemon and containerd: CPU above idle, tcp probes",
            "probes a second",
            "ms per probe",
            {label: points(steady(label), "probes_per_second", "cpu_ms_per_probe")
             for label in labels("daemon")},
        ),
        Chart(
            "performance-latency.svg",
            "Manager: from a stored result to the label on the pod",
            "results a second",
            "ms",
            {f"{label}, {name}": points(of("latency", label), "results_per_second", column)
             for label in labels("latency")
             for name, column in (("median", "stored_to_label_ms_p50"), ("p99", "stored_to_label_ms_p99"))},
        ),
    ]  # fmt: skip


def svg(chart: Chart) -> str:
    xs = [x for points in chart.series.values() for x, _ in points]
    ys = [y for points in chart.series.values() for _, y in points]
    low, high = math.log10(min(xs)), math.log10(max(xs))
    top = _round_up(max(ys))

    def place(x: float, y: float) -> tuple[float, float]:
        share = (math.log10(x) - low) / ((high - low) or 1)
        return (
            LEFT + share * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM),
        )

    parts = [_text(WIDTH / 2, 18, chart.title, "middle", "bold")]
    for step in range(5):
        y = top * step / 4
        _, down = place(min(xs), y)
        parts.append(f'<path d="M{LEFT} {down:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 8, down + 4, f"{y:g}", "end"))
    for x in sorted(set(xs)):
        across, _ = place(x, 0)
        parts.append(_text(across, HEIGHT - BOTTOM + 18, f"{x:,g}", "middle"))
    parts.append(_text(WIDTH / 2, HEIGHT - 12, chart.x, "middle"))
    parts.append(_text(8, 36, chart.y, "start"))
    shown = [(name, points) for name, points in chart.series.items() if points]
    for number, (name, points) in enumerate(shown):
        colour = COLOURS[number % len(COLOURS)]
        placed = [place(*point) for point in points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in placed]
        parts.append(_text(WIDTH - RIGHT, TOP + 14 + 16 * number, name, "end", colour=colour))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12">\n<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _text(
    x: float, y: float, text: str, anchor: str, weight: str = "normal", colour: str = "#333"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="{colour}">{escape(text)}</text>'
    )


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 6, 8 or 10 times a power of ten: quarters of it are short numbers."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(each * power for each in (1, 2, 4, 6, 8, 10) if each * power >= value)
