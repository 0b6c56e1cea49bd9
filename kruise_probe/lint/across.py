"""Checks across files: markers against pod templates, and markers against each other.

Correct files must have no findings. Something missing is reported only if all files could be read
(`FileContents.unclear_file`), and only for pods that a marker certainly selects. The cluster may have objects that are
not in the files. A controller or a probe may set a label to any value, and `kubectl -n` may set an absent namespace.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import PurePath
from typing import Final, NamedTuple

from kruise_probe.api.pods import names_of
from kruise_probe.api.problems import Problem, closest_name, did_you_mean
from kruise_probe.api.reserved import reserved_condition_error, reserved_label_error
from kruise_probe.api.v1alpha1 import MAX_PROBES
from kruise_probe.controllers import limits
from kruise_probe.controllers.claims import ClaimConflict, claims_of, conflicts_of
from kruise_probe.controllers.compiled import CompiledProbe
from kruise_probe.hints.selectors import (
    corrected,
    distance,
    selector_text,
    unmet,
    why_not,
)
from kruise_probe.lint.findings import Finding, Rule
from kruise_probe.lint.markers import WrittenMarker
from kruise_probe.lint.nodes import (
    PodTemplate,
    below,
    child_path,
    finding_at,
    items_of,
    locate,
    occurrences,
    text_of,
)
from kruise_probe.lint.policies import policy_findings

INJECTED_CONTAINERS: Final = frozenset(
    {"istio-proxy", "linkerd-proxy", "kuma-sidecar", "consul-dataplane", "daprd", "vault-agent"}
)
"""Containers that webhooks of common products add to pods."""

_LIMITS: Final = {
    limits.TOO_MANY_MARKERS: Rule.TOO_MANY_MARKERS,
    limits.TOO_MANY_PROBES: Rule.TOO_MANY_PROBES,
    limits.TOO_MANY_KEYS: Rule.TOO_MANY_KEYS,
}


@dataclass
class FileContents:
    """What the files contain.

    Attributes:
        unclear_file: the first file whose objects are not all known. A missing object may be in it.
        all_pods: whether all pods are in `templates`; False if a custom resource may create others.
        added_containers: containers that SidecarSets and webhooks add.
    """

    markers: list[WrittenMarker] = field(default_factory=list)
    templates: list[PodTemplate] = field(default_factory=list)
    unclear_file: str | None = None
    all_pods: bool = True
    added_containers: set[str] = field(default_factory=lambda: set(INJECTED_CONTAINERS))


def across_files(contents: FileContents) -> Iterator[Finding]:
    """The findings that concern more than one object."""
    written = set[str]()
    for marker in contents.markers:
        written |= names_of(marker.compiled.marks, "labels")
    selections = [select(marker, contents.templates, written) for marker in contents.markers]
    if contents.unclear_file is None:
        for selection in selections:
            yield from _of(selection.marker, _missing(selection, contents))
        for template in contents.templates:
            yield from _of(template, _gates(template, selections))
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


class Selection(NamedTuple):
    """The templates that one marker may select, and those of them that it certainly selects."""

    marker: WrittenMarker
    possible: list[PodTemplate]
    certain: set[PodTemplate]


def select(
    marker: WrittenMarker,
    templates: Sequence[PodTemplate],
    written: Set[str],
) -> Selection:
    """The selection of a marker; `written` are the labels that probes write."""
    selection = Selection(marker, [], set())
    selector = marker.compiled.selector
    if not selector.requirements:
        return selection
    for template in templates:
        if not may_share_namespace(marker, template):
            continue
        missing = [requirement.key for requirement in unmet(selector, template.pod.labels)]
        if all(key in written or _may_be_set_later(key, template) for key in missing):
            selection.possible.append(template)
            if not missing and marker.key.namespace == template.namespace:
                selection.certain.add(template)
    return selection


def _may_be_set_later(key: str, template: PodTemplate) -> bool:
    """Whether a controller may set this label on running pods."""
    if reserved_label_error(key) is not None:
        return True
    labels = template.pod.labels
    return not (template.is_exact or key in labels or closest_name(key, labels))


def may_share_namespace(marker: WrittenMarker, template: PodTemplate) -> bool:
    if not marker.key.namespace or not template.namespace:
        return True
    return marker.key.namespace == template.namespace


def _missing(selection: Selection, contents: FileContents) -> Iterator[Finding]:
    """Pods, containers and ports that no file has."""
    marker = selection.marker
    if not selection.possible:
        yield from _no_pod(marker, contents)
    if not selection.certain:
        return
    for probe in marker.compiled.probes[:MAX_PROBES]:
        for problem in _probe_problems(probe, selection, contents.added_containers):
            yield finding_at(marker.root, problem)


def _no_pod(marker: WrittenMarker, contents: FileContents) -> Iterator[Finding]:
    selector = marker.compiled.selector
    templates = [
        template for template in contents.templates if may_share_namespace(marker, template)
    ]
    if not templates or not selector.requirements:
        return
    closest = min(
        templates,
        key=lambda template: distance(selector, template.pod.labels),
    )
    labels = closest.pod.labels
    # The pods of other markers may be in another repository.
    folder = PurePath(marker.file).parent
    is_beside = any(PurePath(template.file).parent == folder for template in templates)
    if not (contents.all_pods and is_beside) and not corrected(selector, labels):
        return
    message = (
        f"matches no pod template of these files; the closest is {closest.place}: "
        f"{why_not(selector, labels)}; correct the selector, or the labels of the template"
    )
    key = unmet(selector, labels)[0].key
    path = "spec.selector"
    position = locate(marker.root, path)
    for place in occurrences(
        below(marker.root, "spec", "selector"),
        key,
        path,
    ):
        path, position = place
        break
    yield Finding(
        position,
        path,
        Rule.NO_POD,
        message,
    )


def _probe_problems(
    probe: CompiledProbe, selection: Selection, added_containers: Set[str]
) -> Iterator[Problem]:
    """The container or the port that no selected template has."""
    path, _ = selection.marker.probe_at(probe.probe)
    templates = selection.possible
    having = [template for template in templates if template.pod.container(probe.container)]
    if having:
        yield from _port(path, probe, having)
    elif probe.container not in added_containers:
        yield from _no_container(path, probe.container, templates)


def _no_container(
    path: str,
    name: str,
    templates: Sequence[PodTemplate],
) -> Iterator[Problem]:
    template = templates[0]
    names = [container.name for container in template.pod.containers]
    if name in template.init_containers:
        message = (
            f"{name!r} of {template.place} is an init container, which ends before the pod runs; "
            "name another container, or set restartPolicy: Always on it"
        )
    elif not _may_have(name, names, templates):
        remedy = _remedy(name, names, "correct containerName")
        message = f"{template.place} has no container {name!r}, only {', '.join(names)}{remedy}"
    else:
        return
    yield Problem(
        f"{path}.containerName",
        Rule.NO_CONTAINER,
        message,
    )


def _port(
    path: str,
    probe: CompiledProbe,
    templates: Sequence[PodTemplate],
) -> Iterator[Problem]:
    name = probe.port_name
    if not name:
        return
    names = list[str]()
    for template in templates:
        container = template.pod.container(probe.container)
        ports = [port for port, _ in container.ports] if container else []
        if name in ports:
            return
        if template is templates[0]:
            names = ports
    if _may_have(name, names, templates):
        return
    handler = "httpGet" if probe.container_probe.probe.http_get else "tcpSocket"
    message = (
        f"container {probe.container!r} of {templates[0].place} has no port {name!r}, "
        f"only {', '.join(names) or 'ports without a name'}"
        f"{_remedy(name, names, 'write the name or the number of one of its ports')}"
    )
    yield Problem(
        f"{path}.probe.{handler}.port",
        Rule.NO_PORT,
        message,
    )


def _may_have(
    name: str,
    names: Iterable[str],
    templates: Iterable[PodTemplate],
) -> bool:
    """Whether a controller or a webhook may add `name`; not if it is a typing error of one that the template has."""
    if all(template.is_exact for template in templates):
        return False
    return not closest_name(name, names)


def _remedy(
    wrong: str,
    names: Iterable[str],
    otherwise: str,
) -> str:
    """The end of a message: the closest name, or what to do."""
    close = did_you_mean(wrong, names)
    return f".{close}" if close else f"; {otherwise}"


def _gates(template: PodTemplate, selections: Iterable[Selection]) -> Iterator[Finding]:
    """Readiness gates whose name resembles a condition of a probe. Other gates may belong to other controllers."""
    near = list[WrittenMarker]()
    written = set[str]()
    for selection in selections:
        if may_share_namespace(selection.marker, template):
            near.append(selection.marker)
            if template in selection.possible:
                written |= selection.marker.condition_types
    for index, node in enumerate(items_of(template.root, "spec", "readinessGates")):
        gate = text_of(node, "conditionType")
        if not gate or gate in written or reserved_condition_error(gate):
            continue
        if why := _why_unwritten(gate, template, near):
            path = f"spec.readinessGates[{index}].conditionType"
            problem = Problem(path, Rule.READINESS_GATE, why)
            found = finding_at(template.root, problem)
            yield found._replace(path=child_path(template.path, path))


def _why_unwritten(
    gate: str, template: PodTemplate, markers: Iterable[WrittenMarker]
) -> str | None:
    """Why no probe writes `gate`; None if it may be the condition of another controller."""
    types: dict[str, None] = {}
    for marker in markers:
        selector = marker.compiled.selector
        if not selector.requirements:
            continue
        if gate in marker.condition_types:
            why = why_not(selector, template.pod.labels)
            return f"only PodProbeMarker {marker.key.name} writes {gate}, but it does not select these pods: {why}; correct one of the two"
        types |= dict.fromkeys(sorted(marker.condition_types))
    domain, slash, _ = gate.rpartition("/")
    siblings = [name for name in types if slash and name.startswith(f"{domain}/")]
    if not siblings and not did_you_mean(gate, types):
        return None
    remedy = _remedy(
        gate,
        types,
        f"the probes write {', '.join(siblings)}; correct one of the two",
    )
    return f"no probe of these files writes {gate}, so the pods never become Ready{remedy}"


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


def share_pods(first: Selection, second: Selection) -> bool:
    """Whether different markers select a common pod, because one selector includes the other or both select one template.

    Markers without a namespace that are in different folders may be of different clusters.
    """
    one = first.marker
    other = second.marker
    if one.key.name == other.key.name:
        return False
    if not one.key.namespace and PurePath(one.file).parent != PurePath(other.file).parent:
        return False
    mine = set(one.compiled.selector.requirements)
    yours = set(other.compiled.selector.requirements)
    if not mine or not yours:
        return False
    return mine <= yours or yours <= mine or not first.certain.isdisjoint(second.certain)


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
