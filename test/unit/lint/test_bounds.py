"""No file takes long: the work is bounded, whatever a file contains."""

import time

from support.cases import cases
from support.linting import lint_texts

from kruise_probe.lint.findings import MAX_TEXT

MARKER = """
apiVersion: apps.kruise.io/v1alpha1
kind: PodProbeMarker
metadata: {name: m%d}
spec:
  selector: {matchLabels: {app: %s}}
  probes:
  - {name: p, containerName: c, probe: {tcpSocket: {port: 1}}, podConditionType: %s}
"""
PODS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: d%d}
spec:
  template:
    metadata: {labels: {app: %s}}
    spec: {containers: [{name: c}], readinessGates: [{conditionType: %s}]}
"""
HEAD = "apiVersion: apps.kruise.io/v1alpha1\nkind: PodProbeMarker\nmetadata: {name: a}\nspec:\n"
COUNT = 400


def many(*texts: str) -> str:
    return "---".join(texts)


@cases(
    "texts",
    markers_in_conflict=[many(*(MARKER % (n, "a", "a/b") for n in range(COUNT)))],
    each_marker_selects_each_template=[
        many(*(MARKER % (n, "a", f"a/c{n}") for n in range(COUNT))),
        many(*(PODS % (n, "a", f"a/d{n}") for n in range(COUNT))),
    ],
    no_marker_selects_a_template=[
        many(*(MARKER % (n, f"a{n}", f"a/c{n}") for n in range(COUNT))),
        many(*(PODS % (n, "b", f"a/d{n}") for n in range(COUNT))),
    ],
    duplicate_keys=[HEAD + "  a: 1\n" * 20_000],
    keys_that_are_lists=[HEAD + "  [a]: 1\n" * 20_000],
    unknown_fields=[HEAD + "".join(f"  a{n}: 1\n" for n in range(20_000))],
    probes=[HEAD + "  probes:\n" + "  - {}\n" * 20_000],
    long_names=[MARKER % (1, "a", "a" * 500_000), PODS % (1, "a", "b" * 500_000)],
)
def test_large_files_take_bounded_time_and_have_short_messages(texts: list[str]) -> None:
    start = time.process_time()

    report = lint_texts(*texts)

    assert time.process_time() - start < 10
    assert all(len(each.message) <= MAX_TEXT + 1 for each in report.findings)
