"""Writes docs/pictures/playground.svg: runs the playground for half a minute, and draws what its screen shows.

docs/pictures/architecture.svg is drawn by hand; icon.png is icon.svg, for chats and forums, which show no SVG.
"""

import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path
from select import select

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "playground.svg"
COLUMNS = 120
LINES = 26
SETTLE_SECONDS = 12
DARK = TerminalTheme(
    (12, 12, 12),
    (217, 217, 217),
    [
        (26, 26, 26), (255, 95, 87), (152, 224, 36), (253, 201, 49),
        (102, 153, 255), (214, 112, 214), (88, 209, 235), (196, 197, 181),
    ],
)  # fmt: skip
"""In rich's own dark theme a label, which is magenta, has the red of a failure."""


def recording() -> str:
    """Run the playground and draw its screen as an SVG with a dark frame."""
    console = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
    )
    console.print(
        Text.from_ansi(_screen()),
        no_wrap=True,
        crop=True,
    )
    drawn = console.export_svg(title="kruise-probe playground", theme=DARK)
    # The fonts come from another host, and a picture may not load them.
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)


def _screen() -> str:
    """What a terminal shows some seconds after the first results."""
    here, there = pty.openpty()
    ioctl(
        there,
        termios.TIOCSWINSZ,
        struct.pack("HHHH", LINES, COLUMNS, 0, 0),
    )
    environment = {
        **os.environ,
        "TERM": "xterm",
        "COLUMNS": str(COLUMNS),
        "LINES": str(LINES),
    }
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    process = subprocess.Popen(
        ["kruise-probe", "playground"], stdin=there, stdout=there, stderr=there, env=environment
    )
    os.close(there)
    buffer = ""
    ready = 0.0
    try:
        while True:
            if not select([here], [], [], 60)[0]:
                raise SystemExit("the playground showed nothing for 60 s")
            buffer += os.read(here, 65536).decode(errors="replace")
            *screens, buffer = buffer.split("\x1b[H")
            if not ready and any("Succeeded" in screen for screen in screens):
                ready = time.monotonic() + SETTLE_SECONDS
            if ready and screens and time.monotonic() >= ready:
                return screens[-1].replace("\r\n", "\n")
    finally:
        process.terminate()
        process.wait()
        os.close(here)


if __name__ == "__main__":
    PICTURE.write_text(recording())
