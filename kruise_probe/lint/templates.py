"""Pod templates of any object: a Pod, or any mapping with `spec.containers`, also in custom resources."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from kruise_probe.api.meta import DECODE_ERRORS
from kruise_probe.api.pods import Pod
from kruise_probe.api.resources import PODS
from kruise_probe.lint.nodes import (
    MappingNode,
    Node,
    SequenceNode,
    below,
    items_of,
    text_of,
    value_of,
)

SIDECAR_SET: Final = "SidecarSet"
"""Kruise's kind that adds its containers to pods."""

_INJECTED: Final = re.compile(r"inject|^dapr\.io/enabled$|^gke-gcsfuse/volumes$")
"""In keys of labels and annotations that ask a webhook for more containers."""


class PodTemplate(NamedTuple):
    """The pods that an object of a file describes.

    Attributes:
        place: kind and name of the object.
        namespace: empty if the file does not set it.
        path: of the template in the object; empty for a Pod.
        init_containers: names of init containers that end before the others start.
        is_exact: pods have these labels, containers and ports only. Controllers of custom resources, and webhooks
            that an annotation asks for, add others.
    """

    file: str
    place: str
    namespace: str
    root: MappingNode
    path: str
    pod: Pod
    init_containers: frozenset[str]
    is_exact: bool


class DescribedPods(NamedTuple):
    """The pods that an object describes.

    Attributes:
        readable: False if a template cannot be decoded.
        shows_all_pods: False if it may create pods that are not in `templates`.
        added_containers: names of containers that it adds to other pods.
    """

    templates: tuple[PodTemplate, ...] = ()
    readable: bool = True
    shows_all_pods: bool = True
    added_containers: frozenset[str] = frozenset()


def described_pods(file: str, root: MappingNode) -> DescribedPods:
    """The pods that an object describes. A custom resource may create pods that no file contains."""
    kind, version = text_of(root.get("kind")), text_of(root.get("apiVersion"))
    if kind == SIDECAR_SET:
        names = [_name(each) for each in _containers(root.get("spec"))]
        return DescribedPods(added_containers=frozenset(names))
    is_built_in = _is_built_in(version)
    place = f"{kind} {text_of(below(root, 'metadata', 'name'))}".rstrip()
    namespace = text_of(below(root, "metadata", "namespace"))
    found, readable = [], True
    for path, node in _templates(root, ""):
        pod = _pod(node)
        if pod is None:
            readable = False
        elif pod.labels:
            exact = is_built_in and not _is_injected(node)
            inits = _init_containers(node, pod)
            found.append(PodTemplate(file, place, namespace, node, path, pod, inits, exact))
    return DescribedPods(tuple(found), readable, is_built_in)


def _is_built_in(version: str) -> bool:
    group, slash, _ = version.partition("/")
    return (
        not slash
        or "." not in group
        or (group.endswith(".k8s.io") and not group.endswith(".x-k8s.io"))
    )


def _is_injected(template: MappingNode) -> bool:
    maps = (below(template, "metadata", each) for each in ("labels", "annotations"))
    keys = (key for each in maps if isinstance(each, MappingNode) for key in each.entries)
    return any(map(_INJECTED.search, keys))


def _templates(node: Node, path: str) -> Iterator[tuple[str, MappingNode]]:
    """The outermost mappings with `spec.containers`."""
    if isinstance(node, MappingNode):
        if isinstance(below(node, "spec", "containers"), SequenceNode):
            yield path, node
            return
        children = [
            (f"{path}.{key}" if path else key, entry.value)
            for key, entry in node.entries.items()
            if key not in ("metadata", "status")
        ]
    else:
        children = [(f"{path}[{index}]", each) for index, each in enumerate(items_of(node))]
    for where, each in children:
        yield from _templates(each, where)


def _pod(template: MappingNode) -> Pod | None:
    """The template as the manager decodes a pod; None if it does not decode."""
    spec = template.get("spec")
    fields = ("containers", "initContainers", "readinessGates")
    document = {
        "metadata": {"labels": value_of(below(template, "metadata", "labels"))},
        "spec": {each: value_of(below(spec, each)) for each in fields if spec},
    }
    try:
        return PODS.decode(msgspec.json.encode(document))
    except DECODE_ERRORS:
        return None


def _containers(spec: Node | None) -> list[Node]:
    if spec is None:
        return []
    return [*items_of(below(spec, "containers")), *items_of(below(spec, "initContainers"))]


def _name(container: Node) -> str:
    return text_of(below(container, "name"))


def _init_containers(template: MappingNode, pod: Pod) -> frozenset[str]:
    names = (_name(each) for each in _containers(template.get("spec")))
    return frozenset(each for each in names if each and pod.container(each) is None)
