"""The table of test/README.md tells the truth about which tests there are."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
README = (TESTS / "README.md").read_text()
NAMED = sorted(set(re.findall(r"`([a-z0-9_/]+\.py)::(test_\w+)`", README)))
FILES = set(re.findall(r"`(?!test/)((?:[a-z0-9_]+/)+\w+\.py)(?:`|::)", README))
LATER = {*("A19", "A44", "A45"), *("B1", "B10", "B15", "B17", "B26")}
ROWS = [
    f"{area}{number}"
    for area, count in (("A", 46), ("B", 26), ("C", 16), ("D", 12))
    for number in range(1, count + 1)
    if f"{area}{number}" not in LATER
]


@pytest.mark.parametrize(("file", "name"), [pytest.param(*each, id=each[1]) for each in NAMED])
def test_a_test_that_is_named_exists(file: str, name: str) -> None:
    assert re.search(rf"def {name}\(", (TESTS / file).read_text()), f"{file} has no {name}"


def test_every_file_that_is_named_exists() -> None:
    assert [each for each in FILES if not (TESTS / each).is_file()] == []


def test_every_row_has_one_line_and_no_other_has() -> None:
    assert re.findall(r"^\| ([A-D]\d+) \|", README, re.MULTILINE) == ROWS
