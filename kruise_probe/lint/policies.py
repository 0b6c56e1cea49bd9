"""Policies against the workloads whose pods they mark: what the manager writes or removes, and the workload does not expect.

Only pod templates that a marker certainly selects count, so each finding is certain.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kruise_probe.api.extraction import FromMessage
from kruise_probe.api.labels import LabelSelector, Selector, compile_selector
from kruise_probe.api.names import DELETION_COST_ANNOTATION
from kruise_probe.api.pods import Mark
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.controllers.compiled import CompiledProbe
from kruise_probe.lint.findings import Finding, Rule
from kruise_probe.lint.markers import WrittenMarker
from kruise_probe.lint.nodes import MappingNode, PodTemplate, below, occurrences, text_of, value_of

IGNORE_COST: Final = frozenset({"DaemonSet", "StatefulSet"})
"""Workloads of Kubernetes that choose the pods to delete otherwise."""

_NO_SELECTOR: Final = Selector(())
_COST: Final = Mark("annotations", DELETION_COST_ANNOTATION)


def policy_findings(marker: WrittenMarker, templates: Iterable[PodTemplate]) -> Iterator[Finding]:
    """The findings of a marker's policies; `templates` are those that it certainly selects."""
    in_order = sorted(
        templates,
        key=lambda template: (template.file, template.root.position),
    )
    for probe in marker.compiled.probes:
        for template in in_order:
            found = list(_findings(marker, probe, template))
            yield from found
            if found:
                break  # One workload is enough to see the mistake.


def _findings(
    marker: WrittenMarker, probe: CompiledProbe, template: PodTemplate
) -> Iterator[Finding]:
    yield from _role_findings(marker, probe, template)
    selector = _owner_selector(template)
    for mark in sorted(probe.marks):
        if mark.field == "conditions":
            continue
        if mark == _COST and template.kind in IGNORE_COST:
            message = (
                f"{template.place} ignores {DELETION_COST_ANNOTATION}: only ReplicaSets, so also Deployments, "
                "delete pods by their cost; use another workload, or remove the key"
            )
            yield _at(
                marker,
                probe,
                mark,
                Rule.COST_IGNORED,
                message,
            )
        why = _why_excluded(probe, mark, selector) if mark.field == "labels" else ""
        if why:
            message = (
                f"the selector of {template.place} does not match a pod {why}, so that workload replaces the pod by a "
                "new one; use a label that no selector of a workload names"
            )
            yield _at(
                marker,
                probe,
                mark,
                Rule.OWNER_SELECTOR,
                message,
            )
            continue
        state = _removed_in(probe, mark)
        if state and _is_set_by(template, mark):
            message = (
                f"the pod template of {template.place} sets this {mark.kind}, and the manager removes it while the probe is "
                f"{state}; add the value that it should have then to a policy for {state}"
            )
            yield _at(
                marker,
                probe,
                mark,
                Rule.TEMPLATE_KEY,
                message,
            )


def _role_findings(
    marker: WrittenMarker, probe: CompiledProbe, template: PodTemplate
) -> Iterator[Finding]:
    """What makes the role of an exclusive probe not exclusive, or leaves its pods without a group."""
    if probe.exclusive is None:
        return
    for mark, value in probe.policies[ProbeState.SUCCEEDED].items():
        if getattr(template.pod, mark.field).get(mark.name) == value:
            message = (
                f"the pod template of {template.place} gives the {mark.kind} of this role to each new pod, and the manager sets "
                "it nowhere until it is removed there; remove it from the template"
            )
            yield _at(
                marker,
                probe,
                mark,
                Rule.NOT_EXCLUSIVE,
                message,
            )
    label = probe.exclusive.group_label
    if label and template.is_exact and label not in template.pod.labels:
        path, node = marker.probe_at(probe.probe)
        message = (
            f"the pod template of {template.place} has no label {label!r}, so its pods are one group with the empty value; "
            "set the label, or remove groupByLabel"
        )
        yield Finding(
            node.position,
            f"{path}.exclusive.groupByLabel",
            Rule.NOT_EXCLUSIVE,
            message,
        )


def _removed_in(probe: CompiledProbe, mark: Mark) -> ProbeState | None:
    """The first state in which the manager removes the key."""
    for state in (ProbeState.SUCCEEDED, ProbeState.FAILED):
        if mark not in probe.policies[state]:
            return state
    return None


def _is_set_by(template: PodTemplate, mark: Mark) -> bool:
    keys = below(template.root, "metadata", mark.field)
    return isinstance(keys, MappingNode) and mark.name in keys.entries


def _why_excluded(probe: CompiledProbe, mark: Mark, selector: Selector) -> str:
    """The label of a state with which the owner's selector does not match; empty if it matches in all states."""
    for requirement in selector.requirements:
        if requirement.key != mark.name:
            continue
        one = Selector((requirement,))
        for wanted in probe.policies.values():
            value = wanted.get(mark)
            if isinstance(value, str) and not one.matches({mark.name: value}):
                return f"with {mark.name}={value}"
            if isinstance(value, FromMessage):
                return f"whose {mark.name} is another value of the message"
        state = _removed_in(probe, mark)
        if state and not one.matches({}):
            return f"without {mark.name}, as while the probe is {state}"
    return ""


def _owner_selector(template: PodTemplate) -> Selector:
    """The selector of a built-in workload; without requirements for any other object."""
    if not text_of(template.owner, "apiVersion").startswith("apps/"):
        return _NO_SELECTOR
    try:
        written = msgspec.convert(
            value_of(below(template.owner, "spec", "selector")), LabelSelector
        )
    except msgspec.ValidationError:
        return _NO_SELECTOR
    return compile_selector(written)


def _at(
    marker: WrittenMarker, probe: CompiledProbe, mark: Mark, rule: Rule, message: str
) -> Finding:
    """The finding, where the probe names the key."""
    path, node = marker.probe_at(probe.probe)
    position = node.position
    for place, found in occurrences(node, mark.name, path):
        if ".markerPolicy[" in place:
            path = place
            position = found
            break
    return Finding(position, path, rule, message)
