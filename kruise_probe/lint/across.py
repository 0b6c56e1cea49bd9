"""Checks across files: markers against pod templates, and markers against each other. Correct files must have no findings.

`missing` has what no file has, and `selections` which markers and templates belong together.
"""

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Final

from kruise_probe.api.pods import names_of
from kruise_probe.api.problems import Problem
from kruise_probe.controllers import limits
from kruise_probe.controllers.claims import ClaimConflict, claims_of, conflicts_of
from kruise_probe.hints.selectors import selector_text
from kruise_probe.lint.contents import FileContents
from kruise_probe.lint.findings import Finding, Rule
from kruise_probe.lint.markers import WrittenMarker
from kruise_probe.lint.missing import missing_objects, unwritten_gates
from kruise_probe.lint.nodes import (
    PodTemplate,
    child_path,
    finding_at,
    occurrences,
)
from kruise_probe.lint.policies import policy_findings
from kruise_probe.lint.selections import Selection, select, share_pods

_LIMITS: Final = {
    limits.TOO_MANY_MARKERS: Rule.TOO_MANY_MARKERS,
    limits.TOO_MANY_PROBES: Rule.TOO_MANY_PROBES,
    limits.TOO_MANY_KEYS: Rule.TOO_MANY_KEYS,
}


def across_files(contents: FileContents) -> Iterator[Finding]:
    """The findings that concern more than one object."""
    written = set[str]()
    for marker in contents.markers:
        written |= names_of(marker.compiled.marks, "labels")
    selections = [select(marker, contents.templates, written) for marker in contents.markers]
    if contents.unclear_file is None:
        for selection in selections:
            yield from _of(selection.marker, missing_objects(selection, contents))
        for template in contents.templates:
            yield from _of(template, unwritten_gates(template, selections))
    for template in contents.templates:
        yield from _of(template, _beyond_limits(template, selections))
    for selection in selections:
        marker = selection.marker
        yield from _of(marker, _own_conflicts(marker))
        yield from _of(marker, policy_findings(marker, selection.certain))
    for one, other in combinations(selections, 2):
        yield from _conflicts(one, other)


def _of(written: WrittenMarker | PodTemplate, findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings about an object, with its file."""
    for finding in findings:
        yield finding._replace(file=written.file)


def _beyond_limits(template: PodTemplate, selections: Iterable[Selection]) -> Iterator[Finding]:
    """Markers that are left out for the pods of a template. Files do not say which markers are the youngest."""
    selected = [
        selection.marker.compiled for selection in selections if template in selection.certain
    ]
    left_out = limits.select(tuple(selected)).left_out
    for cause, rule in _LIMITS.items():
        count = list(left_out.values()).count(cause)
        if count:
            why = f"{len(selected)} PodProbeMarkers select these pods, and {count} of them, the youngest, would be left out: {cause.remedied}"
            problem = Problem("metadata.labels", rule, why)
            found = finding_at(template.root, problem)
            yield found._replace(path=child_path(template.path, problem.path))


def _own_conflicts(marker: WrittenMarker) -> Iterator[Finding]:
    """Names that two probes of one marker write."""
    for conflict in conflicts_of(marker.compiled, claims_of((marker.compiled,))):
        yield _conflict(marker, marker, conflict)


def _conflicts(one: Selection, other: Selection) -> Iterator[Finding]:
    """Names that two markers write on pods that both select. The manager's own rule decides which probe owns the name."""
    first = one.marker
    second = other.marker
    if first.names.isdisjoint(second.names) or not share_pods(one, other):
        return
    claims = claims_of((first.compiled, second.compiled))
    for loser, owner in ((first, second), (second, first)):
        found = [
            _conflict(loser, owner, conflict)
            for conflict in conflicts_of(loser.compiled, claims)
            if conflict.owner != conflict.marker
        ]
        yield from _of(loser, found)


def _conflict(
    marker: WrittenMarker,
    owner: WrittenMarker,
    conflict: ClaimConflict,
) -> Finding:
    """The finding, where the probe names what it writes: in `labels`, in `label` of `fromMessage`, and so on."""
    kind = conflict.mark.kind
    named_in = "podConditionType" if kind == "condition type" else kind
    path, probe = marker.probe_at(conflict.probe)
    position = probe.position
    for place, found in occurrences(
        probe,
        conflict.mark.name,
        path,
    ):
        if place.rpartition(".")[2].startswith(named_in):
            path = place
            position = found
            break
    whose = f"probe {conflict.owner_probe!r}"
    if owner is not marker:
        _, other = owner.probe_at(conflict.owner_probe)
        whose += f" of PodProbeMarker {owner.key.name} ({owner.file}:{other.position.line})"
    message = (
        f"{kind} {conflict.mark.name!r} is also written by {whose}; on a pod that both select, "
        f"only one of them takes effect; {_other_names(marker, owner)}"
    )
    return Finding(
        position,
        path,
        Rule.CONFLICT,
        message,
    )


def _other_names(marker: WrittenMarker, owner: WrittenMarker) -> str:
    """What to do about a conflict: two markers often select each other's pods by mistake."""
    if owner is marker:
        return "use different names"
    return f"use different names, or add a label to the selector {selector_text(marker.compiled.selector)} that these pods do not have"
