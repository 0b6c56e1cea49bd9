"""Checks one PodProbeMarker: kind, fields, the rules of `api.validation`, and what works otherwise than its author expects."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

import msgspec

from kruise_probe.api.labels import KEY_PREFIX, label_key_error
from kruise_probe.api.meta import DECODE_ERRORS, NamespacedName
from kruise_probe.api.names import DELETION_COST_ANNOTATION, GROUP, PAUSED_ANNOTATION
from kruise_probe.api.pods import Mark
from kruise_probe.api.probe import ExecAction
from kruise_probe.api.problems import ErrorKind, Problem, did_you_mean, first_errors, violation
from kruise_probe.api.resources import MARKERS
from kruise_probe.api.v1alpha1 import MarkerPolicy, PodProbeMarker
from kruise_probe.api.validation import fields_without_effect, marker_errors
from kruise_probe.controllers.compiled import CompiledMarker, compile_marker
from kruise_probe.hints.commands import command_problem, hidden_exit_code
from kruise_probe.lint.fields import FieldCheck
from kruise_probe.lint.findings import Finding, Rule
from kruise_probe.lint.nodes import MappingNode, Node, below, finding_at, items_of, text_of


@dataclass(frozen=True, eq=False)
class WrittenMarker:
    """A marker of a file, for checks across files."""

    file: str
    root: MappingNode
    source: PodProbeMarker
    compiled: CompiledMarker

    @property
    def key(self) -> NamespacedName:
        """The namespace is empty if the file does not set it."""
        return self.compiled.key

    @property
    def condition_types(self) -> frozenset[str]:
        """Those in the file, also of invalid probes."""
        probes = items_of(self.root, "spec", "probes")
        return frozenset(text_of(probe, "podConditionType") for probe in probes) - {""}

    @cached_property
    def names(self) -> frozenset[tuple[str, Mark]]:
        """The marks that its probes write, in its namespace."""
        return frozenset((self.key.namespace, mark) for mark in self.compiled.marks)

    def probe_at(self, name: str) -> tuple[str, Node]:
        """The path of the first probe of this name, and the probe."""
        return next(
            (f"spec.probes[{index}]", probe)
            for index, probe in enumerate(items_of(self.root, "spec", "probes"))
            if text_of(probe, "name") == name
        )


def is_marker(root: MappingNode) -> bool:
    """Whether the object is a PodProbeMarker, whatever its apiVersion."""
    return text_of(root, "kind") == MARKERS.kind


def looks_like_marker(root: MappingNode) -> bool:
    """Whether the object has `spec.probes` with a `containerName`."""
    return any(below(probe, "containerName") for probe in items_of(root, "spec", "probes"))


def kind_problem(root: MappingNode) -> Problem | None:
    """A misspelled kind of our group, or a PodProbeMarker of another apiVersion. Other API groups may have similar kinds."""
    kind = text_of(root, "kind")
    version = text_of(root, "apiVersion")
    if kind == MARKERS.kind:
        if version in ("", MARKERS.api_version):
            return None
        message = f"{version} has no kind {kind}; write apiVersion: {MARKERS.api_version}"
        return Problem("apiVersion", Rule.UNKNOWN_KIND, message)
    is_ours = version.startswith(f"{GROUP}/")
    if kind and version and not is_ours:
        return None
    is_misspelled = is_ours and did_you_mean(kind, [MARKERS.kind])
    if not is_misspelled and not looks_like_marker(root):
        return None
    wrong = "kind is missing"
    if kind:
        wrong = f"{version or 'an object without apiVersion'} has no kind {kind!r}"
    return Problem(
        "kind",
        Rule.UNKNOWN_KIND,
        f"{wrong}; write kind: {MARKERS.kind}",
    )


def check_marker(
    file: str, root: MappingNode, allowed_labels: Collection[str]
) -> tuple[list[Finding], WrittenMarker | None]:
    """The findings of a marker, and the marker if it can be decoded."""
    fields = FieldCheck(root)
    metadata = fields.value["metadata"]
    read = {"name", "namespace", "annotations"} & metadata.keys()
    document = {
        "metadata": {key: metadata[key] for key in read},
        "spec": fields.value["spec"],
    }
    try:
        marker = msgspec.convert(document, PodProbeMarker)
    except DECODE_ERRORS as error:
        problem = Problem(
            "spec",
            Rule.INVALID,
            f"cannot be decoded: {error}",
        )
        return [
            *fields.findings,
            finding_at(root, problem),
        ], None
    errors = [
        *_name_problems(metadata.get("name") or metadata.get("generateName", "")),
        *first_errors(marker_errors(marker.spec, allowed_labels=allowed_labels)),
    ]
    problems = [error for error in errors if not fields.covers(error.path)]
    problems += _advice(root, marker)
    findings = [
        *fields.findings,
        *(finding_at(root, problem) for problem in problems),
    ]
    compiled = compile_marker(marker, allowed_labels=allowed_labels)
    return findings, WrittenMarker(file, root, marker, compiled)


def _name_problems(name: str) -> Iterator[Problem]:
    if not name:
        yield violation(
            "metadata.name",
            ErrorKind.REQUIRED,
            "name the PodProbeMarker",
        )
    elif label_key_error(f"{name.removesuffix('-')}/a") == KEY_PREFIX:
        detail = (
            "must be a lowercase RFC 1123 subdomain: at most 253 characters of a-z, 0-9, '-' and '.', "
            "with a letter or digit at both ends of each part"
        )
        yield violation(
            "metadata.name",
            ErrorKind.INVALID,
            detail,
            name,
        )


def _advice(root: MappingNode, marker: PodProbeMarker) -> Iterator[Problem]:
    """What the API server accepts, but what does not work."""
    paused = text_of(
        root,
        "metadata",
        "annotations",
        PAUSED_ANNOTATION,
    )
    if paused not in ("", "true", "false"):
        path = f"metadata.annotations[{PAUSED_ANNOTATION}]"
        message = f'{paused!r} has no effect; write "true" to pause the probes, or remove it'
        yield Problem(path, Rule.NO_EFFECT, message)
    for path in fields_without_effect(marker.spec):
        message = "has no effect: probes of a marker never restart a container; remove it"
        yield Problem(path, Rule.NO_EFFECT, message)
    for number, probe in enumerate(marker.spec.probes):
        path = f"spec.probes[{number}]"
        yield from _command_problem(probe.probe.exec, path)
        for place, policy in enumerate(probe.marker_policy):
            yield from _cost_problem(policy, f"{path}.markerPolicy[{place}]")


def _command_problem(action: ExecAction | None, path: str) -> Iterator[Problem]:
    """The problem of a command that needs a shell."""
    if action is None:
        return
    if problem := command_problem(action.command):
        word = f"{path}.probe.exec.command[{problem.word}]"
        yield Problem(word, Rule.COMMAND, problem.message)
    elif hidden := hidden_exit_code(action.command):
        word = f"{path}.probe.exec.command[{hidden.word}]"
        yield Problem(word, Rule.HIDDEN_EXIT, hidden.message)


def _cost_problem(policy: MarkerPolicy, path: str) -> Iterator[Problem]:
    """The problem of a deletion cost without a static value: a pod without the annotation has the cost 0."""
    if DELETION_COST_ANNOTATION in policy.annotations:
        return
    for index, value in enumerate(policy.from_message):
        if value.annotation == DELETION_COST_ANNOTATION:
            message = (
                "if the message has no valid value, the annotation is removed and the deletion cost is 0; "
                "add a static value for it to annotations of this policy"
            )
            yield Problem(
                f"{path}.fromMessage[{index}]",
                Rule.NO_STATIC_VALUE,
                message,
            )
