"""The tests and files that test/README.md names exist, and the start page of the site is README.md."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
README = (TESTS / "README.md").read_text()
FILES = set(re.findall(r"`(?!test/)((?:[a-z0-9_]+/)+\w+\.py)(?:`|::)", README))
NAMED = set(re.findall(r"`([a-z0-9_/]+\.py)::(test_\w+)`", README))


def test_every_file_that_is_named_exists() -> None:
    assert FILES
    for name in FILES:
        assert (TESTS / name).is_file(), name


def test_every_test_that_is_named_exists() -> None:
    assert NAMED
    for file, name in NAMED:
        text = (TESTS / file).read_text()
        assert f"def {name}(" in text, f"{file}::{name}"


def test_the_start_page_is_the_readme_up_to_its_installation() -> None:
    root = TESTS.parent
    text = (root / "README.md").read_text()
    shown = re.search(r"^Scale in .*(?=## Install it)", text, re.MULTILINE | re.DOTALL)
    assert shown
    page = shown[0].replace("](docs/", "](")
    linked = re.sub(r"!\[.*?\]\((.*?)\)", r"[\g<0>](\1)", page)
    assert linked in (root / "docs/index.md").read_text()
    assert len(text.splitlines()) <= 120
