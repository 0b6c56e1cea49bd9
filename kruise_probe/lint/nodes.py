"""The content of a file as nodes with positions, whether it is YAML or JSON, and how to find a field in it.

Pod templates are in any object: a Pod, or any mapping with `spec.containers`, also in custom resources.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from kruise_probe.api.meta import DECODE_ERRORS
from kruise_probe.api.pods import Pod
from kruise_probe.api.problems import Problem
from kruise_probe.api.resources import PODS
from kruise_probe.lint.findings import Finding, Position, Rule

_STEP: Final = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")

Plain = str | int | float | bool | None


class ScalarNode(NamedTuple):
    """A scalar: as it is written, and its value with the type that kubectl gives it."""

    position: Position
    text: str
    value: Plain


class SequenceNode(NamedTuple):
    position: Position
    items: "tuple[Node, ...]"


class MappingNode(NamedTuple):
    """A mapping. Keys that are not scalars are left out."""

    position: Position
    entries: "dict[str, Entry]"


Node = ScalarNode | SequenceNode | MappingNode


class Entry(NamedTuple):
    key: ScalarNode
    value: Node


class Document(NamedTuple):
    """One document of a file; `flaws` are findings about its keys."""

    root: Node
    flaws: tuple[Finding, ...]


class Malformed(Exception):
    """The rest of a file cannot be read; `finding` says why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


def child_path(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def value_of(node: Node | None) -> Any:
    """The node as plain Python values."""
    if isinstance(node, MappingNode):
        return {key: value_of(entry.value) for key, entry in node.entries.items()}
    if isinstance(node, SequenceNode):
        return [value_of(item) for item in node.items]
    return node.value if node else None


def below(root: Node | None, *names: str) -> Node | None:
    """The node at nested keys."""
    node = root
    for name in names:
        if not isinstance(node, MappingNode) or name not in node.entries:
            return None
        node = node.entries[name].value
    return node


def text_of(root: Node | None, *names: str) -> str:
    """The text of a scalar at nested keys that is a string; empty for anything else."""
    node = below(root, *names)
    value = node.value if isinstance(node, ScalarNode) else None
    return value if isinstance(value, str) else ""


def items_of(root: Node | None, *names: str) -> tuple[Node, ...]:
    """The items of a list at nested keys; nothing for any other node."""
    node = below(root, *names)
    return node.items if isinstance(node, SequenceNode) else ()


def locate(
    root: Node,
    path: str,
    *,
    key: str | None = None,
    item: object = None,
) -> Position:
    """The position of the field at `path`, or of the nearest parent that exists.

    Args:
        root: the object.
        path: such as `spec.probes[0].probe`.
        key: an entry of the mapping at `path`.
        item: the text of an item of the list at `path`.
    """
    node = root
    position = root.position
    steps = [index or name for index, name in _STEP.findall(path)]
    if key is not None:
        steps.append(key)
    for step in steps:
        if isinstance(node, MappingNode) and step in node.entries:
            entry = node.entries[step]
            node = entry.value
            position = entry.key.position
        elif step.isdecimal() and int(step[:6]) < len(items_of(node)):
            node = items_of(node)[int(step[:6])]
            position = node.position
        else:
            return position
    for found in items_of(node):
        if isinstance(found, ScalarNode) and found.text == item:
            return found.position
    return position


def finding_at(root: Node, problem: Problem) -> Finding:
    """The finding of a problem of the object at `root`."""
    rule = problem.reason if isinstance(problem.reason, Rule) else Rule.INVALID
    position = locate(
        root,
        problem.path,
        key=problem.key,
        item=problem.value,
    )
    return Finding(
        position,
        problem.path,
        rule,
        problem.message,
    )


def occurrences(
    node: Node | None,
    text: str,
    path: str,
) -> Iterator[tuple[str, Position]]:
    """The keys and values below `node` that are `text`, with the paths of their fields."""
    if isinstance(node, MappingNode):
        for key, entry in node.entries.items():
            if key == text:
                yield path, entry.key.position
            yield from occurrences(
                entry.value,
                text,
                f"{path}.{key}",
            )
    elif isinstance(node, SequenceNode):
        for index, item in enumerate(node.items):
            yield from occurrences(
                item,
                text,
                f"{path}[{index}]",
            )
    elif node and node.text == text:
        yield path, node.position


_INJECTED: Final = re.compile(r"inject|^dapr\.io/enabled$|^gke-gcsfuse/volumes$")
"""In keys of labels and annotations that ask a webhook for more containers."""


@dataclass(frozen=True, eq=False)
class PodTemplate:
    """The pods that an object of a file describes.

    Attributes:
        kind: of the object.
        place: kind and name of the object.
        namespace: empty if the file does not set it.
        owner: the object.
        root: the template.
        path: of the template in the object; empty for a Pod.
        init_containers: names of init containers that end before the others start.
        is_exact: pods have these labels, containers and ports only. Controllers of custom resources, and webhooks
            that an annotation asks for, add others.
    """

    file: str
    kind: str
    place: str
    namespace: str
    owner: MappingNode
    root: MappingNode
    path: str
    pod: Pod
    init_containers: frozenset[str]
    is_exact: bool


def pod_templates(file: str, root: MappingNode) -> Iterator[PodTemplate | None]:
    """The templates of an object that have labels; None for one that cannot be decoded."""
    kind = text_of(root, "kind")
    place = f"{kind} {text_of(root, 'metadata', 'name')}".rstrip()
    namespace = text_of(root, "metadata", "namespace")
    is_built_in = describes_all_pods(root)
    for path, node in _templates(root, ""):
        pod = _pod(node)
        if pod is None:
            yield None
        elif pod.labels:
            exact = is_built_in and not _is_injected(node)
            names = [name for name in container_names(node) if not pod.container(name)]
            yield PodTemplate(
                file=file,
                kind=kind,
                place=place,
                namespace=namespace,
                owner=root,
                root=node,
                path=path,
                pod=pod,
                init_containers=frozenset(names),
                is_exact=exact,
            )


def describes_all_pods(root: MappingNode) -> bool:
    """Whether the object is of a built-in kind. A custom resource may create pods that no file contains."""
    group, slash, _ = text_of(root, "apiVersion").partition("/")
    is_of_kubernetes = group.endswith(".k8s.io") and not group.endswith(".x-k8s.io")
    return not slash or "." not in group or is_of_kubernetes


def container_names(template: MappingNode) -> list[str]:
    """The names of all containers of a template, and of those that a SidecarSet adds to others."""
    spec = below(template, "spec")
    containers = items_of(spec, "containers") + items_of(spec, "initContainers")
    names = [text_of(container, "name") for container in containers]
    return [name for name in names if name]


def _is_injected(template: MappingNode) -> bool:
    for field in ("labels", "annotations"):
        keys = below(template, "metadata", field)
        if isinstance(keys, MappingNode) and any(map(_INJECTED.search, keys.entries)):
            return True
    return False


def _templates(node: Node, path: str) -> Iterator[tuple[str, MappingNode]]:
    """The outermost mappings with `spec.containers`."""
    if isinstance(node, MappingNode):
        if isinstance(below(node, "spec", "containers"), SequenceNode):
            yield path, node
            return
        for key, entry in node.entries.items():
            if key not in ("metadata", "status"):
                yield from _templates(entry.value, child_path(path, key))
    for index, item in enumerate(items_of(node)):
        yield from _templates(item, f"{path}[{index}]")


def _pod(template: MappingNode) -> Pod | None:
    """The template as the manager decodes a pod; None if it does not decode."""
    fields = ("containers", "initContainers", "readinessGates")
    labels = value_of(below(template, "metadata", "labels"))
    spec = {name: value_of(below(template, "spec", name)) for name in fields}
    document = {"metadata": {"labels": labels}, "spec": spec}
    try:
        return PODS.decode(msgspec.json.encode(document))
    except DECODE_ERRORS:
        return None
