"""Files with one mistake each, as people make them: what is found, and where."""

from pathlib import Path

import pytest
from support.linting import BROKEN, DATA, lint_paths
from support.tables import load_table

FILES = load_table(DATA / "broken.yaml", {})


@pytest.mark.parametrize("name", FILES)
def test_each_mistake_is_found_once_at_its_place(name: str) -> None:
    (finding,) = lint_paths(BROKEN / f"{name}.yaml").findings

    line, column, rule, path, text = FILES[name]
    assert finding.position == (line, column)
    assert finding.rule == rule
    assert finding.path == path
    assert text in finding.message


def test_every_broken_file_has_a_row() -> None:
    assert sorted(file.stem for file in BROKEN.iterdir()) == sorted(FILES)


@pytest.mark.parametrize("name", FILES)
def test_carriage_returns_and_a_byte_order_mark_move_no_line(name: str, tmp_path: Path) -> None:
    original = BROKEN / f"{name}.yaml"
    changed = tmp_path / "changed.yaml"
    changed.write_bytes(b"\xef\xbb\xbf" + original.read_bytes().replace(b"\n", b"\r\n"))

    (before,) = lint_paths(original).findings
    (after,) = lint_paths(changed).findings

    assert after.position == before.position
    assert after.rule == before.rule


def test_a_document_in_front_moves_each_line(tmp_path: Path) -> None:
    for name, (line, *_) in FILES.items():
        text = (BROKEN / f"{name}.yaml").read_text()
        moved = tmp_path / f"{name}.yaml"
        moved.write_text("a: 1\n---\n" + text)

        (finding,) = lint_paths(moved).findings

        assert finding.position.line == line + 2, name


def test_the_marker_of_a_file_keeps_its_annotations() -> None:
    (marker,) = lint_paths(BROKEN / "paused-yes.yaml").markers
    assert marker.metadata.annotations == {"kruise-probe.io/paused": "yes"}
