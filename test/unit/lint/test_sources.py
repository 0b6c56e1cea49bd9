"""Files, folders and standard input; and what is not text, not YAML or too large."""

import io
import os
import sys
from pathlib import Path

import pytest
from support.cases import cases
from support.linting import BROKEN, lint_paths, lint_text

from kruise_probe.lint.findings import Rule
from kruise_probe.lint.linter import MAX_FILE_BYTES, lint, read_sources

CHART = "{{- if .Values.on }}\napiVersion: v1\nkind: ConfigMap\n{{- end }}\n"


@cases(
    "content position message",
    not_utf_8=(b"a: 1\nb: \xff\n", (2, 4), "the byte 0xff is not UTF-8"),
    utf_16=("é: 1".encode("utf-16"), (1, 1), "not UTF-8"),
    binary=(b"a: 1\n\nb: \x00\x01", (3, 4), "U+0000 is not allowed"),
    too_large=(b"#" * (MAX_FILE_BYTES + 1), (1, 1), "larger than 8 MiB"),
)
def test_what_is_no_text_is_a_finding(
    content: bytes, position: tuple[int, int], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(content)

    (finding,) = lint_paths(file).findings

    assert finding.rule == Rule.UNREADABLE
    assert finding.position == position
    assert message in finding.message


def test_a_missing_file_is_a_finding_and_the_others_are_checked(tmp_path: Path) -> None:
    missing, broken = lint_paths(tmp_path / "missing.yaml", BROKEN / "host.yaml").findings

    assert missing.rule == Rule.UNREADABLE
    assert "No such file" in missing.message
    assert broken.rule == Rule.INVALID


def test_an_empty_name_is_no_folder() -> None:
    (finding,) = lint(read_sources([""])).findings

    assert "No such file" in finding.message


def test_a_folder_is_read_recursively_without_hidden_folders(tmp_path: Path) -> None:
    for name in ("b.yaml", "a/c.yml", "a/d.JSON", "a/e.txt", ".git/f.yaml"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text('{"kind": "PodProbeMarker"}')
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.yaml")

    findings = lint_paths(tmp_path, tmp_path / "b.yaml").findings

    read = dict.fromkeys(finding.file for finding in findings)
    assert list(read) == [str(tmp_path / name) for name in ("b.yaml", "a/c.yml", "a/d.JSON")]


def test_a_folder_without_files_is_a_finding(tmp_path: Path) -> None:
    (finding,) = lint_paths(tmp_path).findings
    assert finding.rule == Rule.UNREADABLE


def test_dangling_link_in_a_folder_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to(tmp_path / "missing")
    (tmp_path / ".#b.yaml").symlink_to("user@host.1")  # the lock of Emacs
    (tmp_path / "b.yaml").write_text("a: 1\n")

    (finding,) = lint_paths(tmp_path).findings

    assert finding.file == str(tmp_path / "a.yaml")
    assert finding.rule == Rule.UNREADABLE
    assert "No such file" in finding.message


@cases("closed", named_folder="", folder_below="closed")
def test_folder_that_cannot_be_read_is_a_finding(
    closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Permissions do not stop root, so the error is raised here."""
    (tmp_path / "closed").mkdir()
    (tmp_path / "a.yaml").write_text("a: 1\n")
    folder = tmp_path / closed
    scandir = os.scandir

    def refuse(path: str) -> object:
        if Path(path) == folder:
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)

    (finding,) = lint_paths(tmp_path).findings

    assert Path(finding.file) == folder
    assert finding.rule is Rule.UNREADABLE
    assert finding.message == (
        "the folder cannot be read: Permission denied; check its path and permissions"
    )


@cases(
    "name content found",
    yaml_of_something_else=("values.yaml", "a: [", False),
    json_with_comments=("tsconfig.json", "// x\n{\n  a: [1}", False),
    manifest=("broken.yaml", "apiVersion: v1\na: [", True),
    chart=("template.yaml", CHART, False),
    chart_of_a_marker=("marker.yaml", CHART + "# PodProbeMarker", True),
)
def test_in_a_folder_only_files_of_kubernetes_are_reported(
    name: str, content: str, found: bool, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)

    assert bool(lint_paths(tmp_path).findings) == found
    assert lint_paths(tmp_path / name).findings


PROBES = "spec: {probes: [{containerName: a}]}\n"


@cases(
    "text",
    empty="",
    empty_documents="# comment\n---\n---\n",
    no_object="a: 1\na: 2\n",
    list="- 1\n",
    number="5",
    empty_list="apiVersion: v1\nkind: List\nitems:\n",
    list_of_no_objects="apiVersion: v1\nkind: List\nitems: [1, {}]\n",
    json_with_tabs='{\n\t"apiVersion": "v1",\n\t"kind": "Service"\n}\n',
    malformed_pod="apiVersion: v1\nkind: Pod\nspec: {containers: [1]}\n",
    braces_in_quotes="apiVersion: v1\nkind: ConfigMap\ndata: {a: '{{ .x }}'}\n",
    similar_kind_of_another_group="apiVersion: a.example/v1\nkind: A\n" + PROBES,
)
def test_what_is_no_marker_has_no_findings(text: str) -> None:
    assert lint_text(text).findings == ()


def test_a_kustomization_that_changes_labels_hides_the_selectors(tmp_path: Path) -> None:
    name = "selector-of-no-pod.yaml"
    (tmp_path / name).write_text((BROKEN / name).read_text())
    kustomization = tmp_path / "kustomization.yaml"
    kustomization.write_text(f"resources: [{name}]\nimages: [{{name: web, newTag: a}}]\n")
    (finding,) = lint_paths(tmp_path).findings
    assert finding.rule == Rule.NO_POD

    kustomization.write_text(f"resources: [{name}]\ncommonLabels: {{team: a}}\n")
    assert lint_paths(tmp_path).findings == ()


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    content = io.BytesIO((BROKEN / "host.yaml").read_bytes())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(content))

    (finding,) = lint_paths(Path("-")).findings

    assert finding.file == "stdin"
    assert finding.position.line == 14


def test_control_characters_of_a_file_are_escaped() -> None:
    text = (BROKEN / "state.yaml").read_text().replace("Success", r'"\e[31mred\n"')

    (finding,) = lint_text(text).findings

    assert r"\x1b[31mred\n" in finding.message


@cases(
    "text rule line",
    expression_in_quotes=("a: '{{ .x }}'\nb: [\n", Rule.SYNTAX, 3),
    error_before_an_expression=("b: [}\n{{ .x }}\n", Rule.SYNTAX, 1),
    value=("a: {{ .x }}\nb: [\n", Rule.TEMPLATE, 1),
    line=("a:\n  {{- toYaml .x }}\n", Rule.TEMPLATE, 2),
    jinja=("{% if x %}\na: 1\n", Rule.TEMPLATE, 1),
)
def test_a_template_is_named_as_such_only_if_it_is_one(text: str, rule: Rule, line: int) -> None:
    (finding,) = lint_text(text).findings

    assert finding.rule == rule
    assert finding.position.line == line


@cases(
    "text message",
    no_kind=(PROBES, "kind is missing"),
    another_kind_of_our_group=(
        "apiVersion: apps.kruise.io/v1alpha1\nkind: PPM\n" + PROBES,
        "apps.kruise.io/v1alpha1 has no kind 'PPM'",
    ),
)
def test_what_can_only_be_meant_as_a_marker_is_named(text: str, message: str) -> None:
    (finding,) = lint_text(text).findings

    assert finding.rule is Rule.UNKNOWN_KIND
    assert message in finding.message
