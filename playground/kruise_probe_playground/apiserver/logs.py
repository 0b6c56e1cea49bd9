"""`pods/log`: validates PodLogOptions, and opens the log at the pod's node.

Source: kubernetes pkg/registry/core/pod/rest/log.go, strategy.go (LogLocation), core/validation (ValidatePodLogOptions);
kubelet pkg/kubelet/kubelet_pods.go (validateContainerLogStatus).
Differs: no times and no limitBytes; finds the container in the status of the pod; a function replaces the kubelet's port.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

from kruise_probe.api.keys import NamespacedName
from kruise_probe_playground.apiserver import failures
from kruise_probe_playground.apiserver.failures import FailureTarget, bad_request
from kruise_probe_playground.apiserver.pods import CONTAINER_LISTS
from kruise_probe_playground.apiserver.registry import Registry
from kruise_probe_playground.apiserver.requests import is_true, number
from kruise_probe_playground.apiserver.schema import Json


class NotOnNode(Exception):
    """The container is gone, or its command cannot be started; the text says why."""


OpenLog = Callable[[str, bool, int | None], AsyncIterator[bytes]]
"""Opens the log of a container by its id, with follow and tailLines. Raises NotOnNode."""


_MISSING: Final = ("timestamps", "limitBytes", "sinceSeconds", "sinceTime")


def no_nodes(container: str, follow: bool, tail_lines: int | None) -> AsyncIterator[bytes]:
    """For a server without nodes."""
    raise NotOnNode(f"container {container} does not run")


def open_log(
    registry: Registry, key: NamespacedName, query: Mapping[str, str], at_node: OpenLog
) -> AsyncIterator[bytes] | None:
    """Return the bytes of the log that `query` (core/v1 PodLogOptions) selects; None for a pod without a node."""
    tail_lines = _tail_lines(key.name, query)
    kinds = registry.kinds
    pod = kinds["pods"].decode(registry.get(kinds["pods"], key))
    container = _container(pod, query.get("container", ""))
    node = pod["spec"].get("nodeName")
    if not node:
        return None
    if NamespacedName("", node) not in registry.collection(kinds["nodes"]).objects:
        raise failures.not_found(kinds["pods"].target(node))  # the real server's words
    previous = is_true(query.get("previous"))
    found = container_id(pod, container, previous=previous)
    try:
        return at_node(found, is_true(query.get("follow")), tail_lines)
    except NotOnNode as error:
        raise bad_request(str(error)) from error


def _status_of(pod: Json, container: str) -> Json:
    lists = ("initContainerStatuses", "containerStatuses")
    statuses = (each for name in lists for each in pod["status"].get(name, ()))
    return next((each for each in statuses if each["name"] == container), {})


def container_id(pod: Json, container: str, *, previous: bool) -> str:
    """Return the id of the container to read; fail if it has not started, or with `previous`, not restarted."""
    name = f'container "{container}" in pod "{pod["metadata"]["name"]}"'
    found = _status_of(pod, container)
    last = found.get("lastState", {}).get("terminated")
    waiting = found.get("state", {}).get("waiting")
    if previous and not last:
        raise bad_request(f"previous terminated {name} not found")
    if waiting and not last:
        raise bad_request(f"{name} is waiting to start: {waiting['reason']}")
    chosen = last if previous or waiting else found
    if "containerID" not in chosen:
        raise bad_request(f"{name} is not available")
    return str(chosen["containerID"]).partition("://")[2]


def running_container(pod: Json, name: str) -> str:
    """The id of the container that runs, for a command in it."""
    container = _container(pod, name)
    found = _status_of(pod, container)
    if "running" not in found.get("state", {}):
        raise bad_request(f'container not found ("{container}")')
    return str(found["containerID"]).partition("://")[2]


def _tail_lines(pod: str, query: Mapping[str, str]) -> int | None:
    if missing := [each for each in _MISSING if each in query]:
        raise bad_request(
            f"this playground's logs have no {missing[0]}; use container, follow, previous and tailLines"
        )
    tail_lines = number(query, "tailLines")
    if tail_lines is not None and tail_lines < 0:
        why = "must be greater than or equal to 0"
        problem = failures.invalid_value("tailLines", tail_lines, why)
        raise failures.invalid(FailureTarget("", "", "PodLogOptions", pod), [problem])
    return tail_lines


def _container(pod: Json, name: str) -> str:
    names = [str(each["name"]) for part in CONTAINER_LISTS for each in pod["spec"].get(part) or ()]
    containers = pod["spec"]["containers"]
    if not name and len(containers) == 1:
        return str(containers[0]["name"])
    pod_name = pod["metadata"]["name"]
    if not name:
        raise bad_request(
            f"a container name must be specified for pod {pod_name}, choose one of: [{' '.join(names)}]"
        )
    if name not in names:
        raise bad_request(f"container {name} is not valid for pod {pod_name}")
    return name
