"""The screen of the playground, recorded from a terminal."""

import os
import pty
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
from typing import Any

from rich.color import ColorType
from rich.text import Text

from pictures.drawing import svg

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
