"""Suggestions for unknown fields, and what is not reported because it follows from another mistake."""

import pytest
from support.linting import lint_text

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
    return [each.message for each in lint_text(PROBE % (in_probe, beside)).findings]


UNKNOWN = {
    "typo": (", periodSecond: 1", "podConditionType: a/b", "Did you mean 'periodSeconds'?"),
    "case": (", timeoutseconds: 1", "podConditionType: a/b", "Did you mean 'timeoutSeconds'?"),
    "part": (", period: 1", "podConditionType: a/b", "Did you mean 'periodSeconds'?"),
    "end": ("", "conditionType: a/b", "Did you mean 'podConditionType'?"),
    "level": (", command: [a]", "podConditionType: a/b", "it belongs to spec.probes[].probe.exec"),
    "outer-level": (", podConditionType: a/b", "podConditionType: a/b", "it belongs to spec.probes[]"),
    "nothing-close": (", image: a", "podConditionType: a/b", "the fields here are exec, failureThreshold,"),
}  # fmt: skip


@pytest.mark.parametrize(("in_probe", "beside", "message"), UNKNOWN.values(), ids=UNKNOWN)
def test_an_unknown_field_has_one_finding_with_what_to_write(
    in_probe: str, beside: str, message: str
) -> None:
    (found,) = messages(in_probe, beside)

    assert message in found


@pytest.mark.parametrize(
    "in_probe",
    [
        pytest.param(", periodSeconds: null", id="null"),
        pytest.param(", periodSeconds: 5.0", id="whole-float"),
        pytest.param(", periodSeconds: 0x10", id="hex"),
        pytest.param(", httpGet: ~", id="absent-handler"),
    ],
)
def test_what_the_api_server_reads_as_valid_has_no_finding(in_probe: str) -> None:
    assert messages(in_probe) == []


@pytest.mark.parametrize(
    ("in_probe", "beside", "count"),
    [
        pytest.param(", grpc: {prot: 1}", "podConditionType: a/b", 2, id="port-misspelled"),
        pytest.param("", "markerPolicies: []", 1, id="no-output-follows"),
        pytest.param("", "markerPolicy: [{state: Failed, labels: 5}]", 1, id="no-marks-follow"),
        pytest.param(", periodSeconds: -1, timeoutSeconds: x", "podConditionType: a/b", 2, id="two"),
    ],
)  # fmt: skip
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
