"""Files of custom workloads: lint reports what is wrong, and nothing that only a controller knows."""

import re

import pytest
from support.linting import DATA, lint_text


def files(name: str) -> list[object]:
    text = (DATA / name).read_text()
    found = re.findall(r"^#=== (.+)\n((?:(?!#=== ).*\n)*)", text, flags=re.MULTILINE)
    return [pytest.param(content, id=title) for title, content in found]


@pytest.mark.parametrize("text", files("workloads.txt"))
def test_marker_for_a_custom_workload_has_no_findings(text: str) -> None:
    assert lint_text(text).findings == ()


@pytest.mark.parametrize("text", files("broken-workloads.txt"))
def test_mistake_in_a_marker_is_found_once_at_its_line(text: str) -> None:
    (finding,) = lint_text(text).findings

    (marked,) = [line for line in text.splitlines() if " # " in line]
    assert finding.rule == marked.rpartition(" # ")[2]
    assert text.splitlines()[finding.position.line - 1] == marked
