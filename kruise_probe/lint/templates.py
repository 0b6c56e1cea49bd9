"""Pod templates of any object: a Pod, or any mapping with `spec.containers`, also in custom resources."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from kruise_probe.api.meta import DECODE_ERRORS
from kruise_probe.api.pods import Pod
from kruise_probe.api.resources import PODS
from kruise_probe.lint.nodes import (
    MappingNode,
    Node,
    SequenceNode,
    below,
    child_path,
    items_of,
    text_of,
    value_of,
)

_INJECTED: Final = re.compile(r"inject|^dapr\.io/enabled$|^gke-gcsfuse/volumes$")
"""In keys of labels and annotations that ask a webhook for more containers."""


@dataclass(frozen=True, eq=False)
class PodTemplate:
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


def pod_templates(file: str, root: MappingNode) -> Iterator[PodTemplate | None]:
    """The templates of an object that have labels; None for one that cannot be decoded."""
    place = f"{text_of(root, 'kind')} {text_of(root, 'metadata', 'name')}".rstrip()
    namespace = text_of(root, "metadata", "namespace")
    is_built_in = describes_all_pods(root)
    for path, node in _templates(root, ""):
        pod = _pod(node)
        if pod is None:
            yield None
        elif pod.labels:
            exact = is_built_in and not _is_injected(node)
            init = frozenset(each for each in container_names(node) if not pod.container(each))
            yield PodTemplate(file, place, namespace, node, path, pod, init, exact)


def describes_all_pods(root: MappingNode) -> bool:
    """Whether the object is of a built-in kind. A custom resource may create pods that no file contains."""
    group, slash, _ = text_of(root, "apiVersion").partition("/")
    is_of_kubernetes = group.endswith(".k8s.io") and not group.endswith(".x-k8s.io")
    return not slash or "." not in group or is_of_kubernetes


def container_names(template: MappingNode) -> list[str]:
    """The names of all containers of a template, and of those that a SidecarSet adds to others."""
    spec = below(template, "spec")
    containers = items_of(spec, "containers") + items_of(spec, "initContainers")
    return [name for name in (text_of(each, "name") for each in containers) if name]


def _is_injected(template: MappingNode) -> bool:
    maps = (below(template, "metadata", name) for name in ("labels", "annotations"))
    keys = (key for each in maps if isinstance(each, MappingNode) for key in each.entries)
    return any(map(_INJECTED.search, keys))


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
    document = {
        "metadata": {"labels": value_of(below(template, "metadata", "labels"))},
        "spec": {name: value_of(below(template, "spec", name)) for name in fields},
    }
    try:
        return PODS.decode(msgspec.json.encode(document))
    except DECODE_ERRORS:
        return None
