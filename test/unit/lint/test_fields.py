"""Suggestions for unknown fields, and what is not reported because it follows from another mistake."""

import pytest
from support.cases import cases
from support.linting import DATA, lint_text
from support.tables import load_table

PROBE = """
apiVersion: apps.kruise.io/v1alpha1
kind: PodProbeMarker
metadata: {name: a}
spec:
  selector: {matchLabels: {app: a}}
  probes:
  - name: a
    containerName: a
    probe: {exec: {command: [a]}%s}
    %s
"""


def messages(in_probe: str = "", beside: str = "podConditionType: a/b") -> list[str]:
    text = PROBE % (in_probe, beside)
    return [finding.message for finding in lint_text(text).findings]


TABLE = load_table(DATA / "fields.yaml", {})


@cases("in_probe beside message", **TABLE["unknown"])
def test_an_unknown_field_has_one_finding_with_what_to_write(
    in_probe: str, beside: str, message: str
) -> None:
    (found,) = messages(in_probe, beside)

    assert message in found


@cases("in_probe", **TABLE["valid"])
def test_what_the_api_server_reads_as_valid_has_no_finding(in_probe: str) -> None:
    assert messages(in_probe) == []


@cases("in_probe beside count", **TABLE["following"])
def test_errors_that_follow_from_another_are_left_out(
    in_probe: str, beside: str, count: int
) -> None:
    assert len(messages(in_probe, beside)) == count


@pytest.mark.parametrize("key", ["x]", "]", "[", "a.b", "a[0]", ".", " "])
def test_an_unknown_field_may_have_any_name(key: str) -> None:
    text = PROBE % ("", "podConditionType: a/b")

    (found,) = lint_text(text.replace("spec:", f"spec:\n  '{key}': 1")).findings

    assert found.message.startswith("unknown field ")


def test_two_objects_without_a_separator_are_named_as_such() -> None:
    text = PROBE % ("", "podConditionType: a/b")

    assert "write '---' between two objects" in lint_text(text + text).findings[0].message
