"""Writes docs/pictures: the architecture, the figures of docs/performance.md and the layout of the dashboard, as SVG.

With --check it only reports whether they are current. With --record it runs the playground for half a minute and writes
what its screen showed. This picture differs each time, so --check does not compare it.
"""

import sys
from pathlib import Path

from pictures.architecture import architecture
from pictures.dashboard import layout
from pictures.performance import performance
from pictures.recording import recording

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"


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
            print(f"{path} is out of date: run hack/gen_pictures.py", file=sys.stderr)
    return stale


if __name__ == "__main__":
    sys.exit(main())
