"""What no file has: pods that a marker selects, the containers and ports of probes, and conditions of readiness gates.

Something missing is reported only if all files could be read (`FileContents.unclear_file`), and only for pods that a marker
certainly selects.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import PurePath

from kruise_probe.api.problems import Problem, closest_name, did_you_mean
from kruise_probe.api.reserved import reserved_condition_error
from kruise_probe.api.v1alpha1 import MAX_PROBES
from kruise_probe.controllers.compiled import CompiledProbe
from kruise_probe.hints.selectors import (
    corrected,
    distance,
    unmet,
    why_not,
)
from kruise_probe.lint.contents import FileContents
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
from kruise_probe.lint.selections import Selection, may_share_namespace


def missing_objects(selection: Selection, contents: FileContents) -> Iterator[Finding]:
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


def unwritten_gates(template: PodTemplate, selections: Iterable[Selection]) -> Iterator[Finding]:
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
