"""Files of custom workloads: lint reports what is wrong, and nothing that only a controller knows."""

import re

import pytest
from support.linting import DATA, lint_text


def files(name: str) -> list[object]:
    parts = re.split(r"^#=== (.+)\n", (DATA / name).read_text(), flags=re.MULTILINE)
    return [pytest.param(text, id=id) for id, text in zip(parts[1::2], parts[2::2], strict=True)]


@pytest.mark.parametrize("text", files("workloads.txt"))
def test_marker_for_a_custom_workload_has_no_findings(text: str) -> None:
    assert lint_text(text).findings == ()


@pytest.mark.parametrize("text", files("broken-workloads.txt"))
def test_mistake_in_a_marker_is_found_once_at_its_line(text: str) -> None:
    (expected,) = (
        (number, line.rpartition(" # ")[2])
        for number, line in enumerate(text.splitlines(), start=1)
        if " # " in line
    )

    (finding,) = lint_text(text).findings

    assert (finding.position.line, finding.rule) == expected
