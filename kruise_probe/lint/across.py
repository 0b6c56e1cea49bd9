"""Checks across files: markers against pod templates, and markers against each other.

Correct files must have no findings. Something missing is reported only if all files could be read
(`FileContents.unclear_file`), and only for pods that a marker certainly selects.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import PurePath
from typing import Final

from kruise_probe.api.reserved import reserved_condition_error
from kruise_probe.api.spelling import closest_name, did_you_mean
from kruise_probe.api.v1alpha1 import MAX_PROBES
from kruise_probe.controllers.compiled import CompiledProbe
from kruise_probe.controllers.pods.claims import ClaimConflict, claims_of, conflicts_of
from kruise_probe.inspection.selectors import (
    distance,
    misses_by_typos,
    unmet,
    why_not,
)
from kruise_probe.lint.findings import Finding, Position, Rule
from kruise_probe.lint.markers import WrittenMarker
from kruise_probe.lint.matching import Selections, may_share_namespace, selecting
from kruise_probe.lint.nodes import below, finding_at, items_of, locate, occurrences, text_of
from kruise_probe.lint.scripts import ConfigMaps, script_problem
from kruise_probe.lint.templates import PodTemplate

INJECTED_CONTAINERS: Final = frozenset(
    {"istio-proxy", "linkerd-proxy", "kuma-sidecar", "consul-dataplane", "daprd", "vault-agent"}
)
"""Containers that webhooks of common products add to pods."""


@dataclass
class FileContents:
    """What the files contain.

    Attributes:
        unclear_file: the first file whose objects are not all known. A missing object may be in it.
        all_pods: whether all pods are in `templates`; False if a custom resource may create others.
        added_containers: containers that SidecarSets add.
    """

    markers: list[WrittenMarker] = field(default_factory=list)
    templates: list[PodTemplate] = field(default_factory=list)
    unclear_file: str = ""
    all_pods: bool = True
    added_containers: set[str] = field(default_factory=set)
    config_maps: ConfigMaps = field(default_factory=dict)


def across_files(contents: FileContents) -> Iterator[Finding]:
    """The findings that concern more than one object."""
    selections = Selections(contents.markers, contents.templates)
    if not contents.unclear_file:
        yield from _pods_and_containers(contents, selections)
        yield from _gates(contents, selections)
    yield from _conflicts(contents.markers, selections)


def _pods_and_containers(contents: FileContents, selections: Selections) -> Iterator[Finding]:
    added = INJECTED_CONTAINERS | contents.added_containers
    for marker in contents.markers:
        possible, certain = selections.of(marker)
        if not possible:
            yield from _no_pod(marker, contents)
        elif certain:
            for probe in marker.compiled.probes[:MAX_PROBES]:
                having = [each for each in possible if each.pod.container(probe.container)]
                if having:
                    yield from _port(marker, probe, having)
                    yield from _script(marker, probe, having, contents.config_maps)
                elif probe.container not in added:
                    yield from _no_container(marker, probe, possible)


def _no_pod(marker: WrittenMarker, contents: FileContents) -> Iterator[Finding]:
    selector = marker.compiled.selector
    templates = [each for each in contents.templates if may_share_namespace(marker, each)]
    if not templates or not selector.requirements:
        return
    closest = min(templates, key=lambda each: distance(selector, each.pod.labels))
    is_certain = contents.all_pods and _is_beside(marker, templates)
    if not is_certain and not misses_by_typos(selector, closest.pod.labels):
        return
    message = (
        f"matches no pod template of these files; the closest is {closest.place}: "
        f"{why_not(selector, closest.pod.labels)}; correct the selector, or the labels of the template"
    )
    path = "spec.selector"
    key = unmet(selector, closest.pod.labels)[0].key
    node = below(marker.root, "spec", "selector")
    places = occurrences(node, key, path) if node else iter(())
    path, position = next(places, (path, locate(marker.root, path)))
    yield Finding(marker.file, position, path, Rule.NO_POD, message)


def _is_beside(marker: WrittenMarker, templates: Iterable[PodTemplate]) -> bool:
    """Whether a template is in the marker's folder. The pods of other markers may be in another repository."""
    folder = PurePath(marker.file).parent
    return any(PurePath(each.file).parent == folder for each in templates)


def _no_container(
    marker: WrittenMarker, probe: CompiledProbe, templates: Sequence[PodTemplate]
) -> Iterator[Finding]:
    path = f"{marker.probe_path(probe.probe)}.containerName"
    name, template = probe.container, templates[0]
    names = [each.name for each in template.pod.containers]
    if name in template.init_containers:
        message = (
            f"{name!r} of {template.place} is an init container, which ends before the pod runs; "
            "name another container, or set restartPolicy: Always on it"
        )
    elif not _may_have(name, names, templates):
        message = (
            f"{template.place} has no container {name!r}, only {', '.join(names)}"
            f"{_remedy(name, names, 'correct containerName')}"
        )
    else:
        return
    yield finding_at(marker.file, marker.root, path, Rule.NO_CONTAINER, message)


def _may_have(name: str, names: Iterable[str], templates: Iterable[PodTemplate]) -> bool:
    """Whether a controller or a webhook may add `name`; not if it is a typing error of one that the template has."""
    return not all(each.is_exact for each in templates) and not closest_name(name, names)


def _port(
    marker: WrittenMarker, probe: CompiledProbe, templates: Sequence[PodTemplate]
) -> Iterator[Finding]:
    name = probe.port_name
    containers = [each.pod.container(probe.container) for each in templates]
    if not name or any(each and each.port_number(name) for each in containers):
        return
    names = [port for each in containers[:1] if each for port, _ in each.ports]
    if _may_have(name, names, templates):
        return
    handler = "httpGet" if probe.container_probe.probe.http_get else "tcpSocket"
    path = f"{marker.probe_path(probe.probe)}.probe.{handler}.port"
    message = (
        f"container {probe.container!r} of {templates[0].place} has no port {name!r}, "
        f"only {', '.join(names) or 'ports without a name'}"
        f"{_remedy(name, names, 'write the name or the number of one of its ports')}"
    )
    yield finding_at(marker.file, marker.root, path, Rule.NO_PORT, message)


def _script(
    marker: WrittenMarker,
    probe: CompiledProbe,
    templates: Sequence[PodTemplate],
    config_maps: ConfigMaps,
) -> Iterator[Finding]:
    action = probe.container_probe.probe.exec
    command = (action.command if action else None) or ()
    found = [script_problem(each, probe.container, command, config_maps) for each in templates]
    if found and all(found):
        path = f"{marker.probe_path(probe.probe)}.probe.exec.command"
        yield finding_at(marker.file, marker.root, path, Rule.COMMAND, found[0])


def _gates(contents: FileContents, selections: Selections) -> Iterator[Finding]:
    """Readiness gates whose name resembles a condition of a probe. Other gates may belong to other controllers."""
    for template, index, gate in _unwritten_gates(contents, selections):
        near = [each for each in contents.markers if may_share_namespace(each, template)]
        if why := _why_unwritten(gate, template, near):
            path = f"spec.readinessGates[{index}].conditionType"
            whole = f"{template.path}.{path}" if template.path else path
            found = finding_at(template.file, template.root, path, Rule.READINESS_GATE, why)
            yield found._replace(path=whole)


def _unwritten_gates(
    contents: FileContents, selections: Selections
) -> Iterator[tuple[PodTemplate, int, str]]:
    by_template = selecting(contents.markers, selections)
    for template in contents.templates:
        gates = items_of(below(template.root, "spec", "readinessGates"))
        markers = by_template.get(id(template), ()) if gates else ()
        written = {name for each in markers for name in each.condition_types}
        for index, node in enumerate(gates):
            gate = text_of(below(node, "conditionType"))
            if gate and gate not in written and not reserved_condition_error(gate):
                yield template, index, gate


def _why_unwritten(gate: str, template: PodTemplate, markers: Iterable[WrittenMarker]) -> str:
    """Why no probe writes `gate`; empty if it may be the condition of another controller."""
    types: dict[str, None] = {}
    for marker in markers:
        if not marker.compiled.selector.requirements:
            continue
        if gate in marker.condition_types:
            why = why_not(marker.compiled.selector, template.pod.labels)
            return f"only PodProbeMarker {marker.name} writes {gate}, but it does not select these pods: {why}; correct one of the two"
        types |= dict.fromkeys(sorted(marker.condition_types))
    domain, slash, _ = gate.rpartition("/")
    siblings = [each for each in types if slash and each.startswith(f"{domain}/")]
    if not siblings and not did_you_mean(gate, types):
        return ""
    remedy = _remedy(gate, types, f"the probes write {', '.join(siblings)}; correct one of the two")
    return f"no probe of these files writes {gate}, so the pods never become Ready{remedy}"


def _remedy(wrong: str, names: Iterable[str], otherwise: str) -> str:
    """The end of a message: the closest name, or what to do."""
    close = did_you_mean(wrong, names)
    return f".{close}" if close else f"; {otherwise}"


def _conflicts(markers: Sequence[WrittenMarker], selections: Selections) -> Iterator[Finding]:
    """Names that two probes write on pods that both select. The manager's own rule decides which probe owns the name."""
    for marker in markers:
        for each in conflicts_of(marker.compiled, claims_of((marker.compiled,))):
            yield _conflict(marker, marker, each)
    for first, second in _pairs_with_a_common_name(markers):
        if selections.share_pods(first, second):
            claims = claims_of((first.compiled, second.compiled))
            for loser, owner in ((first, second), (second, first)):
                for each in conflicts_of(loser.compiled, claims):
                    if each.owner != each.marker:
                        yield _conflict(loser, owner, each)


def _pairs_with_a_common_name(
    markers: Iterable[WrittenMarker],
) -> Iterator[tuple[WrittenMarker, WrittenMarker]]:
    """Pairs of different markers of one namespace that write a common name."""
    by_name: dict[tuple[str, str, str], dict[str, WrittenMarker]] = {}
    for each in markers:
        for kind in ("labels", "annotations", "condition_types"):
            for name in getattr(each.compiled, kind):
                by_name.setdefault((each.namespace, kind, name), {}).setdefault(each.name, each)
    pairs = (pair for sharing in by_name.values() for pair in combinations(sharing.values(), 2))
    seen = set[tuple[int, int]]()
    for first, second in pairs:
        pair = (first.compiled.serial, second.compiled.serial)
        if pair not in seen:
            seen.add(pair)
            yield first, second


def _place_of(marker: WrittenMarker, conflict: ClaimConflict) -> tuple[str, Position]:
    """Where a probe names what it writes: in `labels`, or in `label` of `fromMessage`, and so on."""
    probe = marker.probe_path(conflict.probe)
    field = "podConditionType" if conflict.kind == "condition type" else conflict.kind
    places = occurrences(marker.probe_node(conflict.probe), conflict.name, probe)
    fitting = (each for each in places if each[0].rpartition(".")[2].startswith(field))
    return next(fitting, (probe, locate(marker.root, probe)))


def _conflict(marker: WrittenMarker, owner: WrittenMarker, conflict: ClaimConflict) -> Finding:
    path, position = _place_of(marker, conflict)
    whose = f"probe {conflict.owner_probe!r}"
    if owner is not marker:
        line = locate(owner.root, owner.probe_path(conflict.owner_probe)).line
        whose += f" of PodProbeMarker {owner.name} ({owner.file}:{line})"
    message = (
        f"{conflict.kind} {conflict.name!r} is also written by {whose}; on a pod that both select, "
        "only one of them takes effect; use different names"
    )
    return Finding(marker.file, position, path, Rule.CONFLICT, message)
