"""The time for a file is bounded, whatever it contains."""

import time

from support.cases import cases
from support.linting import lint_texts

from kruise_probe.lint.findings import MAX_TEXT

MARKER = """
apiVersion: apps.kruise.io/v1alpha1
kind: PodProbeMarker
metadata: {name: m%d}
spec:
  selector: {matchLabels: {app: APP}}
  probes:
  - {name: p, containerName: c, probe: {tcpSocket: {port: 1}}, podConditionType: CONDITION}
"""
PODS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: d%d}
spec:
  template:
    metadata: {labels: {app: APP}}
    spec: {containers: [{name: c}], readinessGates: [{conditionType: CONDITION}]}
"""
HEAD = "apiVersion: apps.kruise.io/v1alpha1\nkind: PodProbeMarker\nmetadata: {name: a}\nspec:\n"


def many(text: str, count: int = 400, *, app: str, condition: str) -> str:
    """A stream of `count` objects; `%d` is the number of the object."""
    text = text.replace("APP", app).replace("CONDITION", condition)
    return "---".join(text.replace("%d", str(number)) for number in range(count))


@cases(
    "texts",
    markers_in_conflict=[many(MARKER, app="a", condition="a/b")],
    each_marker_selects_each_template=[
        many(MARKER, app="a", condition="a/c%d"),
        many(PODS, app="a", condition="a/d%d"),
    ],
    no_marker_selects_a_template=[
        many(MARKER, app="a%d", condition="a/c%d"),
        many(PODS, app="b", condition="a/d%d"),
    ],
    duplicate_keys=[HEAD + "  a: 1\n" * 20_000],
    keys_that_are_lists=[HEAD + "  [a]: 1\n" * 20_000],
    unknown_fields=[HEAD + "".join(f"  a{number}: 1\n" for number in range(20_000))],
    probes=[HEAD + "  probes:\n" + "  - {}\n" * 20_000],
    long_names=[
        many(MARKER, 1, app="a", condition="a" * 500_000),
        many(PODS, 1, app="a", condition="b" * 500_000),
    ],
)
def test_large_files_take_bounded_time_and_have_short_messages(texts: list[str]) -> None:
    start = time.process_time()

    report = lint_texts(*texts)

    assert time.process_time() - start < 10
    assert all(len(finding.message) <= MAX_TEXT + 1 for finding in report.findings)
