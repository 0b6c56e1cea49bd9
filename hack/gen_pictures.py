"""Writes docs/pictures: the architecture, the figures of docs/performance.md and the layout of the dashboard, as SVG.

With --check it only says whether they are current. With --record it runs the playground for half a minute and writes
what its screen showed; this picture differs each time, so --check does not compare it.
"""

import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from fcntl import ioctl
from html import escape
from itertools import pairwise
from pathlib import Path
from select import select
from typing import Any, NamedTuple

from monitoring.dashboard import dashboard
from rich.color import ColorType
from rich.text import Text

DOCS = Path(__file__).parent.parent / "docs"
PICTURES = DOCS / "pictures"
# Every picture has its own paper, so it is legible on a page in either mode. Readers in dark mode get dark paper.
STYLE = """
svg { --paper: #ffffff; --soft: #eef2f7; --ink: #1f2328; --muted: #57606a; --line: #8c959f; --ours: #2563c9; --other: #9a6700; --good: #1a7f37; --bad: #b42318 }
@media (prefers-color-scheme: dark) {
  svg { --paper: #0f141a; --soft: #1d2632; --ink: #e6edf3; --muted: #a2adb8; --line: #7d8792; --ours: #6ea8ff; --other: #e0a94a; --good: #57c773; --bad: #ff7b72 }
}
text { font: 13px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--ink) }
.paper { fill: var(--paper) } .soft { fill: var(--soft); stroke: var(--line) } .box { fill: var(--paper); stroke: var(--ours) }
.title { font-weight: 600 } .muted { fill: var(--muted); font-size: 12px } .middle { text-anchor: middle } .end { text-anchor: end }
.ours { fill: var(--ours) } .other { fill: var(--other) } .arrow { stroke: var(--ink); fill: none; marker-end: url(#tip) }
.good { fill: var(--good) } .bad { fill: var(--bad) } .dim { fill: var(--muted) }
.screen text { font: 13px ui-monospace, "DejaVu Sans Mono", monospace; white-space: pre } .bold { font-weight: 700 }
"""
TIP = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0 8 4 0 8z" fill="var(--ink)"/></marker>'
)


def svg(width: int, height: int, title: str, *parts: str, style: str = "") -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}{style}</style>\n<defs>{TIP}</defs>\n"
        f'<rect class="paper" width="{width}" height="{height}" rx="8"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def text(x: float, y: float, said: str, style: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{style}">{escape(said)}</text>'


def box(x: float, y: float, width: float, height: float, style: str = "box") -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" class="{style}"/>'
    )


class Edge(NamedTuple):
    """A line through the points, with a label above its first part."""

    points: str
    label: str
    at: tuple[float, float]


# The columns from left to right: user and manager, objects of the API server, node.
OBJECTS = (
    ("PodProbeMarker", "selector, probes, policies", 70),
    ("Pod", "conditions, labels, annotations", 145),
    ("NodePodProbe.spec", "probes of this node", 220),
    ("NodePodProbe.status", "newest results", 295),
    ("Lease, Events", "of the daemon", 370),
)
EDGES = (
    Edge("160,82 348,82", "creates", (254, 74)),
    Edge("348,105 90,105 90,148", "watches; writes status", (250, 122)),
    Edge("210,175 348,175", "writes marks", (280, 167)),
    Edge("210,250 348,250", "writes probes", (280, 242)),
    Edge("348,325 210,325", "watches", (280, 317)),
    Edge("582,250 718,250", "watches", (650, 242)),
    Edge("718,325 582,325", "writes results", (650, 317)),
    Edge("718,395 582,395", "renews, records", (650, 387)),
)


def architecture() -> str:
    parts = [
        box(340, 20, 250, 425, "soft"), text(465, 44, "kube-apiserver", "title middle"),
        box(700, 190, 240, 355, "soft"), text(820, 214, "each node", "title middle"),
        box(20, 62, 140, 40), text(90, 87, "you", "title middle"),
        box(20, 150, 190, 270), text(115, 178, "manager", "title middle"),
        *(text(115, 210 + 46 * row, said, "middle") for row, said in enumerate(("informer caches", "event mapping", "workqueues", "reconcilers"))),
        *(f'<path class="arrow" d="M115 {218 + 46 * row} v22"/>' for row in range(3)),
        text(115, 385, "nodes · pods · markers", "muted middle"), text(115, 404, "one leads, others stand by", "muted middle"),
        box(720, 230, 200, 190), text(820, 256, "daemon", "title middle"),
        *(text(820, 290 + 40 * row, said, "middle") for row, said in enumerate(("supervisor, workers", "probers, threshold", "reporter, heartbeat"))),
        *(f'<path class="arrow" d="M820 {297 + 40 * row} v18"/>' for row in range(2)),
        '<path class="arrow" d="M760 420 v58"/>',
        text(772, 444, "exec through CRI", "muted"), text(772, 462, "http, tcp, grpc to the pod", "muted"),
        box(720, 480, 200, 48), text(820, 509, "containers of probed pods", "middle"),
    ]  # fmt: skip
    for name, content, y in OBJECTS:
        parts += [
            box(350, y - 14, 230, 54),
            text(465, y + 8, name, "title middle"),
            text(465, y + 28, content, "muted middle"),
        ]
    for each in EDGES:
        parts.append(f'<polyline class="arrow" points="{each.points}"/>')
        parts.append(text(*each.at, each.label, "muted middle"))
    return svg(960, 565, "Architecture of kruise-probe", *parts)


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
    rows = rows_of((DOCS / "performance.md").read_text())
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


def layout() -> str:
    """The dashboard's panels, where its JSON places them. There are no curves: nothing measured them here."""
    panels: list[dict[str, Any]] = dashboard()["panels"]
    column, row = 39.0, 22.0
    height = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in panels) * row + 20
    parts = []
    for each in panels:
        place = each["gridPos"]
        x, y = 12 + place["x"] * column, 10 + place["y"] * row
        width, tall = place["w"] * column - 8, place["h"] * row - 8
        parts += [box(x, y, width, tall, "soft"), text(x + 12, y + 22, each["title"], "title")]
        characters = int(width / 7.4)
        lines = _wrapped(each["description"], characters)
        parts += [
            text(x + 12, y + 40 + 16 * index, line, "muted") for index, line in enumerate(lines)
        ]
        legends = [
            query["legendFormat"] for query in each["targets"] if query["legendFormat"] != "__auto"
        ]
        legend = " · ".join(re.sub(r"{{(\w+)}}", r"<\1>", each) for each in legends)
        if tall > 120:
            lines = _wrapped(f"{_unit(each)} {legend}".strip(), characters)
            top = y + tall + 4 - 16 * len(lines)
            parts += [
                text(x + 12, top + 16 * index, line, "muted ours")
                for index, line in enumerate(lines)
            ]
    return svg(960, int(height), "Panels of the Grafana dashboard", *parts)


def _unit(panel: dict[str, Any]) -> str:
    unit = panel["fieldConfig"]["defaults"]["unit"]
    return {"short": "", "s": "seconds:", "ops": "per second:"}.get(unit, f"{unit}:")


def _wrapped(said: str, width: int) -> list[str]:
    lines = [""]
    for word in said.split():
        lines[-1:] = (
            [f"{lines[-1]} {word}".strip()]
            if len(lines[-1]) + len(word) < width
            else [lines[-1], word]
        )
    return lines


COLUMNS, LINES = 100, 26
FRAMES, FRAME_SECONDS = 8, 2.5
COLORS = {1: "bad", 2: "good", 3: "other", 6: "ours"}


def recording() -> str:
    frames = [Text.from_ansi(each) for each in screens()]
    whole = FRAMES * FRAME_SECONDS
    share = 100 / FRAMES
    # Before its turn a frame is hidden. A reader who wants no motion sees the last frame.
    style = f"""
@keyframes turn {{ 0%, {share:g}% {{ visibility: visible }} {share + 0.01:g}%, 100% {{ visibility: hidden }} }}
.frame {{ visibility: hidden; animation: turn {whole:g}s step-end infinite }}
@media (prefers-reduced-motion: reduce) {{ .frame {{ animation: none }} .last {{ visibility: visible }} }}
"""
    parts = []
    for index, frame in enumerate(frames):
        last = " last" if index == len(frames) - 1 else ""
        parts.append(
            f'<g class="screen frame{last}" style="animation-delay: {index * FRAME_SECONDS - whole:g}s">'
        )
        parts += [_line(line, 30 + 18 * row) for row, line in enumerate(frame.split()[:LINES])]
        parts.append("</g>")
    return svg(COLUMNS * 8 + 30, LINES * 18 + 30, "kruise-probe playground", *parts, style=style)


def _line(line: Text, y: int) -> str:
    """Each span at its own place: the width of a character differs between fonts."""
    said = []
    plain = line.plain.rstrip()
    edges = sorted(
        {0, len(plain), *(min(at, len(plain)) for span in line.spans for at in span[:2])}
    )
    for start, end in pairwise(edges):
        part = plain[start:end]
        if not part.strip():
            continue
        styles = [span.style for span in line.spans if span.start <= start and span.end >= end]
        names = [name for each in styles for name in _classes(each)]
        length = f'textLength="{8 * len(part)}" lengthAdjust="spacingAndGlyphs"'
        said.append(
            f'<text x="{15 + 8 * start}" y="{y}" {length} class="{" ".join(names)}">{escape(part)}</text>'
        )
    return "".join(said)


def _classes(style: Any) -> Iterator[str]:
    color = style.color
    if color is not None and color.type is ColorType.STANDARD and color.number is not None:
        yield COLORS.get(color.number % 8, "")
    if style.bold:
        yield "bold"
    if style.dim:
        yield "dim"


def screens() -> list[str]:
    """What the terminal of a real playground shows at FRAMES times, once its probes have results."""
    here, there = pty.openpty()
    ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(COLUMNS), "LINES": str(LINES)}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    process = subprocess.Popen(
        ["kruise-probe", "playground"], stdin=there, stdout=there, stderr=there, env=environment
    )
    os.close(there)
    shown: list[str] = []
    buffer = ""
    ready = 0.0
    try:
        while len(shown) < FRAMES:
            if not select([here], [], [], 60)[0]:
                raise SystemExit("the playground showed nothing for 60 s")
            buffer += os.read(here, 65536).decode(errors="replace")
            *complete, buffer = buffer.split("\x1b[H")
            if not complete:
                continue
            if not ready and "Succeeded" in complete[-1]:
                ready = time.monotonic() + 4
            if ready and time.monotonic() >= ready + len(shown) * FRAME_SECONDS:
                shown.append(complete[-1].replace("\r\n", "\n"))
    finally:
        process.terminate()
        process.wait()
        os.close(here)
    return shown


def main() -> int:
    arguments = sys.argv[1:]
    if arguments == ["--record"]:
        (PICTURES / "playground.svg").write_text(recording())
        return 0
    stale = 0
    for name, wanted in (
        ("architecture.svg", architecture()),
        ("performance.svg", performance()),
        ("dashboard.svg", layout()),
    ):
        path = PICTURES / name
        if arguments != ["--check"]:
            path.write_text(wanted)
        elif not path.exists() or path.read_text() != wanted:
            stale = 1
            print(f"{path} is not what hack/gen_pictures.py makes: run it", file=sys.stderr)
    return stale


if __name__ == "__main__":
    sys.exit(main())
