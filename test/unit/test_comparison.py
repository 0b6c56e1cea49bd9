"""docs/comparison.md: its numbers of lines are those of the programs that `hack/bench runtimes` measures."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "hack"))

from benchmarks import contenders  # noqa: E402

PAGE = (ROOT / "docs/comparison.md").read_text()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param("", 0, id="nothing"),
        pytest.param(
            "x = 1\n\n\n# a comment\ny = 2  # another\n", 2, id="blank-lines-and-comments"
        ),
        pytest.param(
            '"""A\ndocstring."""\nimport a\nfrom b import (\n    c,\n)\nx = 1\n', 1, id="imports"
        ),
        pytest.param(
            'def f():\n    """One."""\n    import a\n    return a\n', 2, id="within-a-function"
        ),
        pytest.param("x = f(\n    1,\n\n    2,\n)\n", 4, id="a-call-of-four-lines"),
        pytest.param('x = """a\n\nb"""\n', 3, id="a-text-of-three-lines"),
        pytest.param("import a; x = 1\n", 0, id="an-import-takes-its-whole-line"),
    ],
)
def test_lines_of_code_are_counted(text: str, lines: int) -> None:
    assert contenders.code_lines(text) == lines


@pytest.mark.parametrize("controller", contenders.CONTROLLERS)
def test_the_page_has_the_lines_of_each_program(controller: str) -> None:
    row = re.search(rf"^\| Lines of code: `{controller}` \|(.*)\|$", PAGE, re.MULTILINE)
    assert row
    shown = [int(cell) for cell in row[1].split("|")]
    counted = [contenders.contender(each, controller).lines for each in contenders.LIBRARIES]
    assert shown == counted
