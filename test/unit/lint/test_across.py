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
    policies = f"[{{state: Failed, labels: {labels}}}]" if labels != "{}" else "[]"
    return f"""
apiVersion: apps.kruise.io/v1alpha1
kind: PodProbeMarker
metadata: {metadata(name, namespace)}
spec:
  selector: {selector}
  probes:
  - name: {name}
    containerName: {container}
    probe: {probe}
    podConditionType: {condition}
    markerPolicy: {policies}
"""


def metadata(name: str, namespace: str) -> str:
    return f"{{name: {name}, namespace: {namespace}}}" if namespace else f"{{name: {name}}}"


def with_policies(marker: str, policies: str) -> str:
    """The text of a marker without policies, with these policies added."""
    return marker.replace("markerPolicy: []", f"markerPolicy: {policies}")


def pods(
    *,
    labels: str = "{app: game}",
    containers: str = "[{name: server, ports: [{name: http, containerPort: 80}]}]",
    more: str = "",
    namespace: str = "",
) -> str:
    return f"""
apiVersion: apps/v1
kind: Deployment
metadata: {metadata("game", namespace)}
spec:
  template:
    metadata: {{labels: {labels}}}
    spec: {{containers: {containers}{more}}}
"""


def made(of: Callable[..., str]) -> Callable[[Json], str]:
    """A tag of the table: `of` with its fields, which are written as YAML in one line."""

    def make(fields: Json) -> str:
        texts = {}
        for name, value in fields.items():
            texts[name] = value if isinstance(value, str) else json.dumps(value)
        return of(**texts)

    return make


TABLE = load_table(DATA / "across.yaml", {"marker": made(marker), "pods": made(pods)})


@pytest.mark.parametrize("texts", TABLE["silent"].values(), ids=TABLE["silent"])
def test_what_may_be_right_is_not_reported(texts: list[str]) -> None:
    rules = {finding.rule for finding in lint_texts(*texts).findings}

    assert rules.isdisjoint(
        {
            Rule.NO_POD,
            Rule.NO_CONTAINER,
            Rule.NO_PORT,
            Rule.READINESS_GATE,
            Rule.CONFLICT,
        }
    )


@pytest.mark.parametrize("row", TABLE["wrong"].values(), ids=TABLE["wrong"])
def test_what_is_certainly_wrong_is_reported_once(row: Json) -> None:
    (finding,) = lint_texts(*row["files"]).findings

    file, rule, message = row["finding"]
    assert finding.file == file
    assert finding.rule == rule
    assert message in finding.message


def many_markers(count: int, *, probes: int = 1, keys: int = 0) -> list[str]:
    """Markers of the same pods, without a conflict."""
    texts: list[str] = []
    for number in range(count):
        labels = {f"l{number}.{key}": "x" for key in range(keys)}
        text = marker(
            f"m{number}",
            condition=f"a/c{number}",
            labels=json.dumps(labels),
        )
        for more in range(1, probes):
            text += f"""
  - name: p{more}
    containerName: server
    probe: {{tcpSocket: {{port: 80}}}}
    podConditionType: a/c{number}-{more}
"""
        texts.append(text)
    return texts


@cases(
    "limit more rule",
    markers=(64, {}, Rule.TOO_MANY_MARKERS),
    probes=(4, {"probes": 32}, Rule.TOO_MANY_PROBES),
    keys=(31, {"keys": 32}, Rule.TOO_MANY_KEYS),
)
def test_markers_beyond_a_limit_of_their_pods_are_reported_at_the_template(
    limit: int, more: dict[str, int], rule: Rule
) -> None:
    fit = many_markers(limit, **more)
    assert lint_texts(*fit, pods()).findings == ()

    too_many = many_markers(limit + 1, **more)
    (finding,) = lint_texts(*too_many, pods()).findings

    assert finding.rule == rule
    assert finding.path == "spec.template.metadata.labels"
    assert "1 of them, the youngest, would be left out" in finding.message


def test_markers_without_namespace_in_two_folders_do_not_conflict(tmp_path: Path) -> None:
    def write(namespace: str) -> None:
        for folder in ("dev", "prod"):
            (tmp_path / folder).mkdir(exist_ok=True)
            file = tmp_path / folder / "marker.yaml"
            file.write_text(marker(folder, namespace=namespace))

    write("")
    assert lint_paths(tmp_path).findings == ()

    write("games")
    (finding,) = lint_paths(tmp_path).findings
    assert finding.rule == Rule.CONFLICT


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


LABEL_AND_ANNOTATION = "labels: {a/b: c}, annotations: {a/b: c}"


@cases(
    "policy paths",
    one_name_in_three_places=(
        LABEL_AND_ANNOTATION,
        [
            "spec.probes[0].podConditionType",
            "spec.probes[0].markerPolicy[0].labels",
            "spec.probes[0].markerPolicy[0].annotations",
        ],
    ),
    from_message=(
        "fromMessage: [{annotation: x}, {label: a/b}, {annotation: a/b}]",
        [
            "spec.probes[0].podConditionType",
            "spec.probes[0].markerPolicy[0].fromMessage[1].label",
            "spec.probes[0].markerPolicy[0].fromMessage[2].annotation",
        ],
    ),
)
def test_a_conflict_is_at_the_field_that_names_it(policy: str, paths: list[str]) -> None:
    texts = []
    for name, marks in {"a": LABEL_AND_ANNOTATION, "b": policy}.items():
        text = marker(name, condition="a/b")
        texts.append(with_policies(text, f"[{{state: Failed, {marks}}}]"))

    findings = lint_texts(*texts).findings

    assert [finding.path for finding in findings] == paths


def workload(
    kind: str = "ReplicaSet",
    *,
    labels: str = "{app: game}",
    annotations: str = "{}",
    selector: str = "",
) -> str:
    return f"""
apiVersion: apps/v1
kind: {kind}
metadata: {{name: game}}
spec:
  selector: {{matchLabels: {selector or labels}}}
  template:
    metadata: {{labels: {labels}, annotations: {annotations}}}
    spec: {{containers: [{{name: server}}]}}
"""


OF_TIER_A = workload(labels="{app: game, tier: a}")
COST = "[{state: Failed, annotations: {controller.kubernetes.io/pod-deletion-cost: '1'}}]"


@cases(
    "policies workload rule message",
    annotation_of_the_template=(
        "[{state: Succeeded, annotations: {safe: 'true'}}]",
        workload(annotations="{safe: 'false'}"),
        Rule.TEMPLATE_KEY,
        "removes it while the probe is Failed",
    ),
    value_that_the_selector_excludes=(
        "[{state: Failed, labels: {tier: b}}]",
        OF_TIER_A,
        Rule.OWNER_SELECTOR,
        "does not match a pod with tier=b",
    ),
    removal_that_the_selector_excludes=(
        "[{state: Failed, labels: {tier: a}}]",
        OF_TIER_A,
        Rule.OWNER_SELECTOR,
        "without tier, as while the probe is Succeeded",
    ),
    cost_of_a_stateful_set=(
        COST,
        workload("StatefulSet"),
        Rule.COST_IGNORED,
        "StatefulSet game ignores",
    ),
    cost_of_a_replica_set=(COST, workload(), None, ""),
    value_in_each_state=(
        "[{state: Succeeded, labels: {tier: a}}, {state: Failed, labels: {tier: a}}]",
        OF_TIER_A,
        None,
        "",
    ),
)
def test_a_policy_is_checked_against_the_workload_whose_pods_it_marks(
    policies: str, workload: str, rule: Rule | None, message: str
) -> None:
    text = with_policies(marker(), policies)

    findings = lint_texts(text, workload).findings

    assert [finding.rule for finding in findings] == [rule] * bool(rule)
    for finding in findings:
        assert message in finding.message
        assert ".markerPolicy[" in finding.path


@cases(
    "labels messages",
    role_of_the_template=(
        "{app: game, shard: a, role: primary}",
        ["gives the label of this role to each new pod"],
    ),
    other_value_of_the_template=("{app: game, shard: a, role: replica}", []),
    without_a_group=("{app: game}", ["has no label 'shard'"]),
)
def test_a_role_is_checked_against_the_pod_template(labels: str, messages: list[str]) -> None:
    policies = """
    - {state: Succeeded, labels: {role: primary}}
    - {state: Failed, labels: {role: replica}}
    exclusive: {groupByLabel: shard}"""
    text = with_policies(marker(), policies)
    template = workload(labels=labels, selector="{app: game}")

    findings = lint_texts(text, template).findings

    assert len(findings) == len(messages)
    for finding, message in zip(findings, messages, strict=True):
        assert finding.rule == Rule.NOT_EXCLUSIVE
        assert message in finding.message
