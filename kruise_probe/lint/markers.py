"""Checks one PodProbeMarker: kind, fields, and the rules of `api.validation`."""

import re
from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from kruise_probe.api.labels import KEY_PREFIX, label_key_error
from kruise_probe.api.meta import DECODE_ERRORS
from kruise_probe.api.names import DELETION_COST_ANNOTATION, GROUP, PAUSED_ANNOTATION
from kruise_probe.api.problems import Problem, first_errors
from kruise_probe.api.resources import MARKERS
from kruise_probe.api.spelling import did_you_mean
from kruise_probe.api.v1alpha1 import PodProbeMarker, PodProbeMarkerSpec
from kruise_probe.api.validation import (
    fields_without_effect,
    marker_errors,
)
from kruise_probe.controllers.compiled import CompiledMarker, compile_marker
from kruise_probe.inspection.commands import command_problem
from kruise_probe.lint.fields import FieldCheck, parents_of
from kruise_probe.lint.findings import Finding, Rule
from kruise_probe.lint.nodes import MappingNode, Node, below, finding_at, items_of, locate, text_of
from kruise_probe.manifests.json_schema import marker_json_schema

NO_EFFECT: Final = "has no effect: probes of a marker never restart a container; remove it"
NO_STATIC_VALUE: Final = (
    "if the message has no valid value, the annotation is removed and the deletion cost is 0; "
    "add a static value for it to annotations of this policy"
)
NO_LINE_END: Final = "matches no message: line ends at the beginning and end of a message are removed; remove them from the pattern"
_ALTERNATIVES: Final = re.compile(r"[|]|[(][?][a-z]*m")
"""In patterns that are not judged: alternatives and the multi-line mode."""
_LINE_END_FIRST: Final = re.compile(r"[(]*(\^|\\A)[(]*(\\[nr]|[\n\r])(?![)]*[*?{])")
_LINE_END_LAST: Final = re.compile(r"(?<!\\)(\\\\)*(\\[nr]|[\n\r])[+]?[)]*([$]|\\z)[)]*\Z")


class WrittenMarker(NamedTuple):
    """A marker of a file, for checks across files.

    Attributes:
        namespace: empty if the file does not set it.
        condition_types: those in the file, also of invalid probes.
    """

    file: str
    root: MappingNode
    namespace: str
    source: PodProbeMarker
    compiled: CompiledMarker
    condition_types: frozenset[str]

    @property
    def name(self) -> str:
        return self.compiled.key.name

    def probe_path(self, name: str) -> str:
        """The path of the first probe of this name."""
        return f"spec.probes[{self._index(name)}]"

    def probe_node(self, name: str) -> Node:
        """The first probe of this name."""
        return _probes(self.root)[self._index(name)]

    def _index(self, name: str) -> int:
        return [text_of(below(each, "name")) for each in _probes(self.root)].index(name)


def _probes(root: MappingNode) -> tuple[Node, ...]:
    return items_of(below(root, "spec", "probes"))


def is_marker(root: MappingNode) -> bool:
    """Whether the object is a PodProbeMarker, whatever its apiVersion."""
    return text_of(root.get("kind")) == MARKERS.kind


def looks_like_marker(root: MappingNode) -> bool:
    """Whether the object has `spec.probes` with a `containerName`."""
    return any(below(each, "containerName") for each in _probes(root))


def _is_misspelled(root: MappingNode, kind: str, version: str) -> bool:
    """Whether an object of another kind is a misspelled PodProbeMarker. Other API groups may have similar kinds."""
    ours = version.startswith(f"{GROUP}/")
    if kind and version and not ours:
        return False
    return looks_like_marker(root) or (ours and bool(did_you_mean(kind, [MARKERS.kind])))


def kind_findings(file: str, root: MappingNode) -> Iterator[Finding]:
    """A misspelled kind of our group, and a PodProbeMarker of another apiVersion."""
    kind, version = text_of(root.get("kind")), text_of(root.get("apiVersion"))
    if kind == MARKERS.kind:
        if version and version != MARKERS.api_version:
            message = f"{version} has no kind {kind}; write apiVersion: {MARKERS.api_version}"
            yield finding_at(file, root, "apiVersion", Rule.UNKNOWN_KIND, message)
    elif _is_misspelled(root, kind, version):
        what = (
            f"{version or 'an object without apiVersion'} has no kind {kind!r}"
            if kind
            else "kind is missing"
        )
        message = f"{what}; write kind: {MARKERS.kind}"
        yield finding_at(file, root, "kind", Rule.UNKNOWN_KIND, message)


class MarkerChecker:
    """Checks markers. `allowed_labels` as the manager's --allowed-label-keys."""

    def __init__(self, allowed_labels: Collection[str] = ()) -> None:
        self._allowed = allowed_labels
        self._schema = marker_json_schema(allowed_labels)
        self._parents = parents_of(self._schema)

    def check(self, file: str, root: MappingNode) -> tuple[list[Finding], WrittenMarker | None]:
        """The findings of a marker, and the marker if it can be decoded."""
        fields = FieldCheck(file, root, self._schema, self._parents)
        findings = list(fields.findings)
        metadata: dict[str, Any] = fields.value["metadata"]
        name, namespace = metadata.get("name", ""), metadata.get("namespace", "")
        findings += _name_findings(file, root, fields, name or metadata.get("generateName", ""))
        document = {
            "metadata": {"name": name, "namespace": namespace},
            "spec": fields.value["spec"],
        }
        try:
            marker = msgspec.convert(document, PodProbeMarker)
        except DECODE_ERRORS as error:
            message = f"cannot be decoded: {error}"
            findings.append(finding_at(file, root, "spec", Rule.INVALID, message))
            return findings, None
        for each in first_errors(marker_errors(marker.spec, allowed_labels=self._allowed)):
            if not fields.covers(each.path):
                findings.append(_finding(file, root, each))
        for path in fields_without_effect(marker.spec):
            findings.append(finding_at(file, root, path, Rule.NO_EFFECT, NO_EFFECT))
        findings += _pause_findings(file, root)
        findings += _from_message_findings(file, root, marker.spec)
        findings += _command_findings(file, root, marker.spec)
        compiled = compile_marker(marker, allowed_labels=self._allowed)
        types = {text_of(below(each, "podConditionType")) for each in _probes(root)} - {""}
        return findings, WrittenMarker(file, root, namespace, marker, compiled, frozenset(types))


def _finding(file: str, root: MappingNode, error: Problem) -> Finding:
    position = locate(root, error.path, key=error.key, item=error.value)
    return Finding(file, position, error.path, Rule.INVALID, error.message)


def _pause_findings(file: str, root: MappingNode) -> Iterator[Finding]:
    value = text_of(below(root, "metadata", "annotations", PAUSED_ANNOTATION))
    if value not in ("", "true", "false"):
        path = f"metadata.annotations[{PAUSED_ANNOTATION}]"
        position = locate(root, "metadata.annotations", key=PAUSED_ANNOTATION)
        message = f'{value!r} has no effect; write "true" to pause the probes, or remove it'
        yield Finding(file, position, path, Rule.NO_EFFECT, message)


def _from_message_findings(
    file: str, root: MappingNode, spec: PodProbeMarkerSpec
) -> Iterator[Finding]:
    """Deletion costs without a static value, because a pod without the annotation has the cost 0; patterns that need
    a line end at the beginning or end of a message, which has no blanks there.
    """
    for number, probe in enumerate(spec.probes or ()):
        for place, policy in enumerate(probe.marker_policy or ()):
            is_static = DELETION_COST_ANNOTATION in (policy.annotations or {})
            for index, each in enumerate(policy.from_message or ()):
                path = f"spec.probes[{number}].markerPolicy[{place}].fromMessage[{index}]"
                if each.annotation == DELETION_COST_ANNOTATION and not is_static:
                    yield finding_at(file, root, path, Rule.NO_STATIC_VALUE, NO_STATIC_VALUE)
                if _needs_line_end(each.regex or ""):
                    path = f"{path}.regex"
                    yield finding_at(file, root, path, Rule.NO_MATCH, NO_LINE_END)


def _needs_line_end(pattern: str) -> bool:
    if _ALTERNATIVES.search(pattern):
        return False
    return bool(_LINE_END_FIRST.match(pattern) or _LINE_END_LAST.search(pattern))


def _command_findings(file: str, root: MappingNode, spec: PodProbeMarkerSpec) -> Iterator[Finding]:
    for number, probe in enumerate(spec.probes or ()):
        if problem := command_problem((probe.probe.exec and probe.probe.exec.command) or ()):
            path = f"spec.probes[{number}].probe.exec.command[{problem.word}]"
            yield finding_at(file, root, path, Rule.COMMAND, problem.message)


def _name_findings(
    file: str, root: MappingNode, fields: FieldCheck, name: str
) -> Iterator[Finding]:
    path = "metadata.name"
    if fields.covers(path):
        return
    if not name:
        message = "Required value: name the PodProbeMarker"
        yield finding_at(file, root, path, Rule.INVALID, message)
    elif label_key_error(f"{name.removesuffix('-')}/a") == KEY_PREFIX:
        message = (
            f'Invalid value: "{name}": must be a lowercase RFC 1123 subdomain: at most 253 characters of '
            "a-z, 0-9, '-' and '.', with a letter or digit at both ends of each part"
        )
        yield finding_at(file, root, path, Rule.INVALID, message)
