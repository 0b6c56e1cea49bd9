"""Checks across files: what is reported, and what may be in the cluster although no file has it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cases import cases
from support.linting import DATA, lint_paths, lint_texts
from support.tables import load_table
from support.wire import Json

from kruise_probe.lint.findings import Rule


def marker(
    name: str = "game",
    *,
    selector: str = "{matchLabels: {app: game}}",
    container: str = "server",
    probe: str = "{tcpSocket: {port: 80}}",
    condition: str = "game.example.com/idle",
    labels: str = "{}",
    namespace: str = "",
) -> str:
    policy = f"[{{state: Failed, labels: {labels}}}]" if labels != "{}" else "[]"
    return f"""
apiVersion: apps.kruise.io/v1alpha1
kind: PodProbeMarker
metadata: {{name: {name}{f", namespace: {namespace}" if namespace else ""}}}
spec:
  selector: {selector}
  probes:
  - name: {name}
    containerName: {container}
    probe: {probe}
    podConditionType: {condition}
    markerPolicy: {policy}
"""


def pods(
    *,
    labels: str = "{app: game}",
    containers: str = "[{name: server, ports: [{name: http, containerPort: 80}]}]",
    more: str = "",
    namespace: str = "",
) -> str:
    template = f"{{metadata: {{labels: {labels}}}, spec: {{containers: {containers}{more}}}}}"
    metadata = f"{{name: game{f', namespace: {namespace}' if namespace else ''}}}"
    return f"\napiVersion: apps/v1\nkind: Deployment\nmetadata: {metadata}\nspec: {{template: {template}}}\n"


def made(of: Callable[..., str]) -> Callable[[Json], str]:
    """A tag of the table: `of` with its fields, which are written as YAML in one line."""

    def make(fields: Json) -> str:
        return of(**{k: v if isinstance(v, str) else json.dumps(v) for k, v in fields.items()})

    return make


TABLE = load_table(DATA / "across.yaml", {"marker": made(marker), "pods": made(pods)})


@pytest.mark.parametrize("texts", TABLE["silent"].values(), ids=TABLE["silent"])
def test_what_may_be_right_is_not_reported(texts: list[str]) -> None:
    across = {Rule.NO_POD, Rule.NO_CONTAINER, Rule.NO_PORT, Rule.READINESS_GATE, Rule.CONFLICT}
    found = [each for each in lint_texts(*texts).findings if each.rule in across]

    assert found == []


@pytest.mark.parametrize("row", TABLE["wrong"].values(), ids=TABLE["wrong"])
def test_what_is_certainly_wrong_is_reported_once(row: Json) -> None:
    (finding,) = lint_texts(*row["files"]).findings

    file, rule, message = row["finding"]
    assert (finding.file, finding.rule) == (file, rule)
    assert message in finding.message


def many_markers(count: int, *, probes: int = 1, keys: int = 0) -> list[str]:
    """Markers of the same pods, without a conflict."""
    texts: list[str] = []
    for number in range(count):
        labels = {f"l{number}.{key}": "x" for key in range(keys)}
        text = marker(f"m{number}", condition=f"a/c{number}", labels=json.dumps(labels))
        for more in range(1, probes):
            text += f"  - {{name: p{more}, containerName: server, probe: {{tcpSocket: {{port: 80}}}}, podConditionType: a/c{number}-{more}}}\n"
        texts.append(text)
    return texts


@pytest.mark.parametrize(
    ("fit", "more", "rule"),
    [
        pytest.param(many_markers(64), many_markers(65), Rule.TOO_MANY_MARKERS, id="markers"),
        pytest.param(
            many_markers(4, probes=32),
            many_markers(5, probes=32),
            Rule.TOO_MANY_PROBES,
            id="probes",
        ),
        pytest.param(
            many_markers(31, keys=32),
            many_markers(32, keys=32),
            Rule.TOO_MANY_KEYS,
            id="keys",
        ),
    ],
)
def test_markers_beyond_a_limit_of_their_pods_are_reported_at_the_template(
    fit: list[str], more: list[str], rule: Rule
) -> None:
    assert lint_texts(*fit, pods()).findings == ()

    (finding,) = lint_texts(*more, pods()).findings

    assert finding.rule == rule
    assert finding.path == "spec.template.metadata.labels"
    assert "1 of them, the youngest, would be left out" in finding.message


def test_markers_without_namespace_in_two_folders_do_not_conflict(tmp_path: Path) -> None:
    for folder in ("dev", "prod"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "marker.yaml").write_text(marker(folder))
    assert lint_paths(tmp_path).findings == ()

    for folder in ("dev", "prod"):
        (tmp_path / folder / "marker.yaml").write_text(marker(folder, namespace="games"))
    assert [each.rule for each in lint_paths(tmp_path).findings] == [Rule.CONFLICT]


def test_two_probes_of_one_marker_that_write_one_label_are_reported() -> None:
    text = (
        marker(labels="{a: b}")
        + """  - name: other
    containerName: server
    probe: {tcpSocket: {port: 81}}
    markerPolicy:
    - state: Succeeded
      labels: {c: d, a: c}
"""
    )

    (finding,) = lint_texts(text).findings

    assert finding.position == (18, 22)
    assert "label 'a' is also written by probe 'game'" in finding.message


CONFLICTS = {
    "one-name-in-three-places": (
        "labels: {a/b: c}, annotations: {a/b: c}",
        [".podConditionType", ".markerPolicy[0].labels", ".markerPolicy[0].annotations"],
    ),
    "from-message": (
        "fromMessage: [{annotation: x}, {label: a/b}, {annotation: a/b}]",
        [".podConditionType", ".markerPolicy[0].fromMessage[1].label", ".markerPolicy[0].fromMessage[2].annotation"],
    ),
}  # fmt: skip


@cases("policy paths", **CONFLICTS)
def test_a_conflict_is_at_the_field_that_names_it(policy: str, paths: list[str]) -> None:
    first, second = (
        marker(name, condition="a/b").replace(
            "markerPolicy: []", f"markerPolicy: [{{state: Failed, {text}}}]"
        )
        for name, text in (("a", "labels: {a/b: c}, annotations: {a/b: c}"), ("b", policy))
    )

    found = [each.path for each in lint_texts(first, second).findings]

    assert found == [f"spec.probes[0]{each}" for each in paths]


def workload(
    kind: str = "ReplicaSet", *, labels: str = "{app: game}", annotations: str = "{}"
) -> str:
    containers = "[{name: server}]"
    template = f"{{metadata: {{labels: {labels}, annotations: {annotations}}}, spec: {{containers: {containers}}}}}"
    return f"""
apiVersion: apps/v1
kind: {kind}
metadata: {{name: game}}
spec: {{selector: {{matchLabels: {labels}}}, template: {template}}}
"""


COST = "controller.kubernetes.io/pod-deletion-cost"
BOTH = "[{state: Succeeded, labels: {tier: a}}, {state: Failed, labels: {tier: a}}]"


@cases(
    "policy workload rule message",
    annotation_of_the_template=(
        "[{state: Succeeded, annotations: {safe: 'true'}}]", workload(annotations="{safe: 'false'}"),
        Rule.TEMPLATE_KEY, "removes it while the probe is Failed",
    ),
    value_that_the_selector_excludes=(
        "[{state: Failed, labels: {tier: b}}]", workload(labels="{app: game, tier: a}"),
        Rule.OWNER_SELECTOR, "does not match a pod with tier=b",
    ),
    removal_that_the_selector_excludes=(
        "[{state: Failed, labels: {tier: a}}]", workload(labels="{app: game, tier: a}"),
        Rule.OWNER_SELECTOR, "without tier, as while the probe is Succeeded",
    ),
    cost_of_a_stateful_set=(
        f"[{{state: Failed, annotations: {{{COST}: '1'}}}}]", workload("StatefulSet"),
        Rule.COST_IGNORED, "StatefulSet game ignores",
    ),
    cost_of_a_replica_set=(f"[{{state: Failed, annotations: {{{COST}: '1'}}}}]", workload(), None, ""),
    value_in_each_state=(BOTH, workload(labels="{app: game, tier: a}"), None, ""),
)  # fmt: skip
def test_a_policy_is_checked_against_the_workload_whose_pods_it_marks(
    policy: str, workload: str, rule: Rule | None, message: str
) -> None:
    text = marker().replace("markerPolicy: []", f"markerPolicy: {policy}")

    findings = lint_texts(text, workload).findings

    assert [finding.rule for finding in findings] == [rule] * bool(rule)
    assert all(message in finding.message for finding in findings)
    assert all(".markerPolicy[" in finding.path for finding in findings)


@cases(
    "labels messages",
    role_of_the_template=("{app: game, shard: a, role: primary}", ["gives the label of this role to each new pod"]),
    other_value_of_the_template=("{app: game, shard: a, role: replica}", []),
    without_a_group=("{app: game}", ["has no label 'shard'"]),
)  # fmt: skip
def test_a_role_is_checked_against_the_pod_template(labels: str, messages: list[str]) -> None:
    policies = (
        "[{state: Succeeded, labels: {role: primary}}, {state: Failed, labels: {role: replica}}]"
    )
    written = f"markerPolicy: {policies}\n    exclusive: {{groupByLabel: shard}}"
    text = marker().replace("markerPolicy: []", written)
    made = workload(labels=labels).replace(f"matchLabels: {labels}", "matchLabels: {app: game}")

    findings = lint_texts(text, made).findings

    assert [finding.rule for finding in findings] == [Rule.NOT_EXCLUSIVE] * len(messages)
    for finding, message in zip(findings, messages, strict=True):
        assert message in finding.message
