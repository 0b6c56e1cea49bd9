"""Writes docs/pictures/playground.svg: runs the playground for half a minute, and draws what its screen shows.

docs/pictures/architecture.svg is drawn by hand; icon.png is icon.svg, for chats and forums, which show no SVG.
"""

import io
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "playground.svg"
COLUMNS = 120
LINES = 26
SECONDS = 30
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
    command = f"stty cols {COLUMNS} rows {LINES}; timeout -s INT {SECONDS} kruise-probe playground"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shown = subprocess.run(
        ["script", "-qec", command, "/dev/null"],
        env={**os.environ, "TERM": "xterm", "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=False,
    ).stdout
    *screens, _end = shown.decode(errors="replace").split("\x1b[H")
    return screens[-1].replace("\r\n", "\n")


if __name__ == "__main__":
    PICTURE.write_text(recording())
