"""Writes docs/pictures: the architecture, as SVG.

With --check it only reports whether they are current. With --record it runs the playground for half a minute and writes
what its screen showed. This picture differs each time, so --check does not compare it.
"""

import sys
from pathlib import Path

from pictures.architecture import architecture
from pictures.recording import recording

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"


def main() -> int:
    arguments = sys.argv[1:]
    if arguments == ["--record"]:
        (PICTURES / "playground.svg").write_text(recording())
        return 0
    path = PICTURES / "architecture.svg"
    wanted = architecture()
    if arguments != ["--check"]:
        path.write_text(wanted)
    elif path.read_text() != wanted:
        print(f"{path} is out of date: run hack/gen_pictures.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
