"""`pods/log`: validates PodLogOptions, and opens the log at the pod's node.

Source: kubernetes pkg/registry/core/pod/rest/log.go, strategy.go (LogLocation), core/validation (ValidatePodLogOptions);
kubelet pkg/kubelet/kubelet_pods.go (validateContainerLogStatus).
Differs: no times and no limitBytes; finds the container in the status of the pod; a function replaces the kubelet's port.
"""

from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from typing import Any, Final

import msgspec

from kruise_probe.api.meta import NamespacedName
from kruise_probe_playground.apiserver import failures
from kruise_probe_playground.apiserver.failures import bad_request
from kruise_probe_playground.apiserver.pods import CONTAINER_LISTS
from kruise_probe_playground.apiserver.registry import Registry
from kruise_probe_playground.apiserver.requests import read_query
from kruise_probe_playground.apiserver.schema import Json, listed


class NotOnNode(Exception):
    """The container is gone, or its command cannot be started; the text says why."""


class Containers:
    """The containers of the nodes, by their ids. This base class is for a server without nodes."""

    def read_log(
        self, container: str, *, follow: bool, tail_lines: int | None
    ) -> AsyncIterator[bytes]:
        """Read a log.

        Raises:
            NotOnNode
        """
        raise NotOnNode(f"container {container} does not run")

    def start_command(
        self, container: str, command: Sequence[str], files: Sequence[int]
    ) -> Coroutine[Any, Any, int]:
        """Start a command with these files as stdin, stdout and stderr.

        What is returned waits for the exit code; cancelling it kills the command.

        Raises:
            NotOnNode
        """
        raise NotOnNode(f"container {container} does not run")


_REFUSED: Final = ("timestamps", "limitBytes", "sinceSeconds", "sinceTime")


class LogOptions(msgspec.Struct, frozen=True, rename="camel"):
    """core/v1 PodLogOptions."""

    container: str = ""
    follow: bool = False
    previous: bool = False
    tail_lines: int | None = None


def open_log(
    registry: Registry, key: NamespacedName, query: Mapping[str, str], containers: Containers
) -> AsyncIterator[bytes] | None:
    """Return the bytes of the log that `query` (core/v1 PodLogOptions) selects; None for a pod without a node."""
    if refused := [option for option in _REFUSED if option in query]:
        raise bad_request(
            f"this playground's logs have no {refused[0]}; use container, follow, previous and tailLines"
        )
    options = read_query(query, LogOptions)
    kinds = registry.kinds
    pod = kinds["pods"].decode(registry.get(kinds["pods"], key))
    container = _container(pod, options.container)
    node = pod["spec"].get("nodeName")
    if not node:
        return None
    if NamespacedName("", node) not in registry.collection(kinds["nodes"]).objects:
        raise failures.not_found(kinds["pods"].target(node))  # the real server's words
    found = container_id(pod, container, previous=options.previous)
    try:
        return containers.read_log(
            found,
            follow=options.follow,
            tail_lines=options.tail_lines,
        )
    except NotOnNode as error:
        raise bad_request(str(error)) from error


def _status_of(pod: Json, container: str) -> Json:
    lists = ("initContainerStatuses", "containerStatuses")
    statuses = (status for name in lists for status in pod["status"].get(name, ()))
    return next((status for status in statuses if status["name"] == container), {})


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


def _container(pod: Json, name: str) -> str:
    names = [
        str(container["name"])
        for part in CONTAINER_LISTS
        for container in listed(pod["spec"], part)
    ]
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
