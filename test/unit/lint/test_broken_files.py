"""Files with one mistake each, as people make them: what is found, and where."""

from pathlib import Path

import pytest
from support.linting import BROKEN, lint_paths

from kruise_probe.lint.findings import Rule

PROBE = "spec.probes[0]"

# file, line, column, rule, path, a part of the message
FILES = [
    ("api-version", 1, 1, Rule.UNKNOWN_KIND, "apiVersion", "write apiVersion: apps.kruise.io/v1alpha1"),
    ("boolean-as-label", 20, 32, Rule.WRONG_TYPE, f"{PROBE}.markerPolicy[0].labels[game.example.com/idle]", 'write "true" in quotes'),
    ("command-as-text", 14, 18, Rule.WRONG_TYPE, f"{PROBE}.probe.exec.command", "must be a list, but is the string 'test -e idle'"),
    ("condition-of-kubernetes", 16, 5, Rule.INVALID, f"{PROBE}.podConditionType", "is reserved: Kubernetes writes this condition"),
    ("conflict", 41, 9, Rule.CONFLICT, f"{PROBE}.markerPolicy[0].labels", "also written by probe 'idle' of PodProbeMarker game"),
    ("container", 11, 5, Rule.NO_CONTAINER, f"{PROBE}.containerName", "Did you mean 'server'?"),
    ("duplicate-key", 21, 7, Rule.DUPLICATE_KEY, f"{PROBE}.markerPolicy[0].labels", "the key 'labels' is already in line 19"),
    ("duration-as-number", 15, 22, Rule.WRONG_TYPE, f"{PROBE}.probe.periodSeconds", "must be an integer, but is the string '5s'"),
    ("empty-selector", 6, 3, Rule.INVALID, "spec.selector", "must not be empty; set matchLabels"),
    ("field-outside-of-its-parent", 15, 5, Rule.UNKNOWN_FIELD, f"{PROBE}.periodSeconds", "it belongs to spec.probes[].probe: check the indentation"),
    ("handler-in-lower-case", 13, 7, Rule.UNKNOWN_FIELD, f"{PROBE}.probe.httpget", "Did you mean 'httpGet'?"),
    ("header-with-line-break", 17, 11, Rule.INVALID, f"{PROBE}.probe.httpGet.httpHeaders[0].value", "starts with '|-' or '>-'"),
    ("host", 14, 9, Rule.INVALID, f"{PROBE}.probe.httpGet.host", "set a Host header"),
    ("init-container", 11, 5, Rule.NO_CONTAINER, f"{PROBE}.containerName", "'setup' of Deployment game is an init container"),
    ("key-of-the-selector", 20, 9, Rule.INVALID, f"{PROBE}.markerPolicy[0].labels", "key 'app' is used by this marker's selector"),
    ("kind", 2, 1, Rule.UNKNOWN_KIND, "kind", "write kind: PodProbeMarker"),
    ("label-value", 20, 9, Rule.INVALID, f"{PROBE}.markerPolicy[0].labels", 'Invalid value: "no match"'),
    ("list", 18, 9, Rule.INVALID, f"{PROBE}.probe.periodSeconds", "PodProbeMarker game: Invalid value: -5: must be between 0 and 2147483647"),
    ("missing-colon", 11, 5, Rule.SYNTAX, "", "write ': ' after the key"),
    ("misspelled-field", 15, 7, Rule.UNKNOWN_FIELD, f"{PROBE}.probe.perodSeconds", "Did you mean 'periodSeconds'?"),
    ("name", 4, 3, Rule.INVALID, "metadata.name", "must be a lowercase RFC 1123 subdomain"),
    ("no-container-name", 10, 5, Rule.INVALID, f"{PROBE}.containerName", "Required value: Name of the container to probe: a regular container or a sidecar; add this field"),
    ("no-effect", 16, 7, Rule.NO_EFFECT, f"{PROBE}.probe.terminationGracePeriodSeconds", "remove it"),
    ("no-static-value", 20, 9, Rule.NO_STATIC_VALUE, f"{PROBE}.markerPolicy[0].fromMessage[0]", "the annotation is removed and the deletion cost is 0"),
    ("no-output", 10, 5, Rule.INVALID, PROBE, "must set podConditionType or markerPolicy"),
    ("no-selector", 6, 3, Rule.INVALID, "spec.selector", "Required value: Label selector of the pods; must not be empty; immutable; add this field"),
    ("number-as-annotation", 20, 53, Rule.WRONG_TYPE, f"{PROBE}.markerPolicy[0].annotations[controller.kubernetes.io/pod-deletion-cost]", 'write "-10" in quotes'),
    ("paused-yes", 6, 5, Rule.NO_EFFECT, "metadata.annotations[kruise-probe.io/paused]", "'yes' has no effect; write \"true\""),
    ("port-name", 14, 9, Rule.NO_PORT, f"{PROBE}.probe.httpGet.port", "has no port 'htpp', only http. Did you mean 'http'?"),
    ("probes-without-dash", 10, 5, Rule.WRONG_TYPE, "spec.probes", "begin each item with '- '"),
    ("quoted-port", 14, 9, Rule.INVALID, f"{PROBE}.probe.tcpSocket.port", "must be a port number"),
    ("readiness-gate", 37, 9, Rule.READINESS_GATE, "spec.template.spec.readinessGates[1].conditionType", "no probe of these files writes game.example.com/lobby"),
    ("reserved-label", 21, 9, Rule.INVALID, f"{PROBE}.markerPolicy[0].labels", "ask an administrator to allow it with --allowed-label-keys"),
    ("same-probe-name", 17, 5, Rule.INVALID, "spec.probes[1].name", "must be unique in this marker"),
    ("selector-of-no-pod", 8, 7, Rule.NO_POD, "spec.selector.matchLabels", "the selector requires app=gmae, but the pod has app=game (did you mean 'game'?); correct the selector"),
    ("state", 18, 7, Rule.INVALID, f"{PROBE}.markerPolicy[0].state", "Unsupported value"),
    ("tab", 15, 1, Rule.SYNTAX, "", "a tab indents this line; indent with spaces"),
    ("template", 4, 9, Rule.TEMPLATE, "metadata.name", "helm template CHART >FILE"),
    ("template-blocks", 1, 1, Rule.TEMPLATE, "", "render it first"),
    ("two-handlers", 15, 7, Rule.INVALID, f"{PROBE}.probe.tcpSocket", "may not specify more than 1 handler type"),
    ("unclosed-quote", 14, 27, Rule.SYNTAX, "", "close the quote"),
    ("unquoted-colon", 16, 27, Rule.SYNTAX, "", "a second ': ' in one line; quote the text"),
    ("wrong-column", 16, 4, Rule.SYNTAX, "", "check the indentation"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "line", "column", "rule", "path", "text"),
    [pytest.param(*each, id=each[0]) for each in FILES],
)
def test_each_mistake_is_found_once_at_its_place(
    name: str, line: int, column: int, rule: Rule, path: str, text: str
) -> None:
    (finding,) = lint_paths(BROKEN / f"{name}.yaml").findings

    assert (finding.position, finding.rule, finding.path) == ((line, column), rule, path)
    assert text in finding.message


def test_every_broken_file_has_a_row() -> None:
    assert sorted(each.stem for each in BROKEN.iterdir()) == sorted(each[0] for each in FILES)


@pytest.mark.parametrize("name", [pytest.param(each[0], id=each[0]) for each in FILES])
def test_carriage_returns_and_a_byte_order_mark_move_no_line(name: str, tmp_path: Path) -> None:
    original = BROKEN / f"{name}.yaml"
    changed = tmp_path / "changed.yaml"
    changed.write_bytes(b"\xef\xbb\xbf" + original.read_bytes().replace(b"\n", b"\r\n"))

    (before,), (after,) = (lint_paths(each).findings for each in (original, changed))

    assert (after.position, after.rule) == (before.position, before.rule)


def test_a_document_in_front_moves_each_line(tmp_path: Path) -> None:
    for name, line, *_ in FILES:
        moved = tmp_path / f"{name}.yaml"
        moved.write_text("a: 1\n---\n" + (BROKEN / f"{name}.yaml").read_text())

        assert [each.position.line for each in lint_paths(moved).findings] == [line + 2], name


def test_the_marker_of_a_file_keeps_its_annotations() -> None:
    (marker,) = lint_paths(BROKEN / "paused-yes.yaml").markers
    assert marker.metadata.annotations == {"kruise-probe.io/paused": "yes"}
