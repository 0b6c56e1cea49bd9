"""Environment variables of a container, and `$(NAME)` in its command.

Source: kubelet pkg/kubelet/kubelet_pods.go (makeEnvironmentVariables), third_party/forked/golang/expansion.
Differs: `POD_IP`, `POD_NAME` and `POD_NAMESPACE` are always set, because a process has no other way to learn its
address. There are no ConfigMaps and Secrets.
"""

import re
from collections.abc import Mapping

from kruise_probe_playground.node.pods import NodePod, PodContainer

_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\))")
_KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class Unsupported(Exception):
    """A container uses something that the playground does not support; the text says what to write."""


def command_line(container: PodContainer, variables: Mapping[str, str]) -> tuple[str, ...]:
    """The command and its arguments, with `$(NAME)` expanded.

    Raises:
        Unsupported: there is no command, and no image with a default one.
    """
    if not container.command:
        raise Unsupported(
            f"container {container.name!r} has no command, and the playground pulls no images;"
            " set spec.containers[].command"
        )
    return tuple(expand(word, variables) for word in (*container.command, *container.args))


def container_environment(
    pod: NodePod, container: PodContainer, *, ip: str, node: str, node_ip: str
) -> dict[str, str]:
    """The variables of one container: the pod's identity, then `env` in order.

    Raises:
        Unsupported: the source of a value is not supported.
    """
    if container.env_from:
        raise Unsupported(
            f"container {container.name!r}: the playground does not support envFrom; set env with values"
        )
    facts = {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace or "",
        "metadata.uid": pod.metadata.uid,
        "spec.nodeName": node,
        "status.podIP": ip,
        "status.podIPs": ip,
        "status.hostIP": node_ip,
        "status.hostIPs": node_ip,
        "spec.serviceAccountName": "default",
    }
    variables = {
        "HOSTNAME": pod.metadata.name,
        "POD_NAME": pod.metadata.name,
        "POD_NAMESPACE": pod.metadata.namespace or "",
        "POD_IP": ip,
    }
    for variable in container.env:
        if variable.value_from is None:
            variables[variable.name] = expand(variable.value or "", variables)
            continue
        selector = variable.value_from.field_ref
        field = selector.field_path if selector else ""
        value = facts.get(field, _keyed_value(pod, field))
        if value is None:
            raise Unsupported(
                f"container {container.name!r}, env {variable.name!r}: the playground supports value,"
                f" and valueFrom.fieldRef of {', '.join(sorted(facts))},"
                " metadata.labels['KEY'] and metadata.annotations['KEY']"
            )
        variables[variable.name] = value
    return variables


def _keyed_value(pod: NodePod, field: str) -> str | None:
    """The label or annotation that a field path names; None for other paths."""
    keyed = _KEYED.fullmatch(field)
    if keyed is None:
        return None
    source = pod.metadata.labels if keyed[1] == "labels" else pod.metadata.annotations
    return (source or {}).get(keyed[2], "")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` with the variable. `$$` is a dollar; an unknown name does not change."""
    return _REFERENCE.sub(
        lambda match: "$" if match[1] is None else variables.get(match[1], match[0]), text
    )
