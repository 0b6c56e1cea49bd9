"""Finds the socket of the runtime that runs this node's pods.

Source: Kruise pkg/daemon/criruntime/factory_unix.go for the mount point; cri-tools for the default paths.
Differs: waits for a runtime that is not available yet; prefers the runtime with pods if several respond.
"""

import os
import stat
from collections.abc import Sequence
from itertools import product
from typing import Final, Self

import structlog

from kruise_probe.daemon.cri.grpc_runtime import GrpcRuntime, socket_path
from kruise_probe.daemon.cri.runtime import RuntimeContainer, RuntimeFailure, RuntimeUnavailable

_log = structlog.get_logger(__name__)

_BELOW_RUN: Final = (
    "k3s/containerd/containerd.sock",  # k3s and RKE2
    "k0s/containerd.sock",
    "cri-dockerd.sock",
    "cri-dockerd/cri-dockerd.sock",
    "crio/crio.sock",
    "crio.sock",
    "dockershim.sock",  # Bottlerocket's name for containerd
    "containerd/containerd.sock",
    "containerd.sock",
)
"""The most specific path first: Docker, for example, runs a containerd without pods."""

_RUN_FOLDERS: Final = (
    "/run",
    "/var/run",
    "/host/run",
    "/host/var/run",
    "/hostvarrun",  # where Kruise's daemon mounts it
)
_ELSEWHERE: Final = ("/var/snap/microk8s/common/run/containerd.sock",)

KNOWN_ENDPOINTS: Final = tuple(
    f"unix://{path}"
    for path in (
        *(f"{folder}/{socket}" for folder, socket in product(_RUN_FOLDERS, _BELOW_RUN)),
        *_ELSEWHERE,
        *(f"/host{path}" for path in _ELSEWHERE),
    )
)


class NodeRuntime(GrpcRuntime):
    """The runtime of this node. Searches for the socket, and again while it has no pods or after the socket was removed.

    Only `list_containers` searches, so there is one search at a time. Until one succeeds, the other calls raise
    RuntimeUnavailable.
    """

    def __init__(self, endpoints: Sequence[str] = ()) -> None:
        """Use `endpoints`, in this order, instead of `KNOWN_ENDPOINTS`.

        Raises:
            ValueError: an endpoint is not a unix socket.
        """
        super().__init__()
        self._has_pods = False
        self._candidates = [*dict.fromkeys(endpoints or KNOWN_ENDPOINTS)]
        for endpoint in self._candidates:
            socket_path(endpoint)

    async def __aenter__(self) -> Self:
        return self

    async def list_containers(self) -> Sequence[RuntimeContainer]:
        try:
            connected = self._has_pods and _is_socket(self.endpoint)
        except OSError:
            connected = False
        if not connected:
            await self._search()
        containers = await super().list_containers()
        self._has_pods = any(container.pod_uid for container in containers)
        return containers

    async def _search(self) -> None:
        """Select the first endpoint that responds and has pods, else the first that responds.

        Raises:
            RuntimeUnavailable: no endpoint responds.
        """
        problems: list[str] = []
        found = ""
        for endpoint in self._candidates:
            try:
                if not _is_socket(endpoint):
                    continue
                has_pods = await _has_pods(endpoint)
            except PermissionError:
                problems.append(_problem_at(endpoint, "Permission denied"))
            except OSError:
                continue
            except RuntimeFailure as failure:
                problems.append(_problem_at(endpoint, str(failure)))
            else:
                if has_pods:
                    found = endpoint
                    break
                found = found or endpoint
        if not found:
            raise RuntimeUnavailable(self._not_found_text(problems))
        if found != self.endpoint:
            await self.close()
            self.connect(found)
            text = await self.version()
            name, _, version = text.partition(" ")
            _log.info("found the container runtime", endpoint=found, runtime=name, version=version)

    def _not_found_text(self, problems: Sequence[str]) -> str:
        candidates = self._candidates
        if problems:
            return f"no container runtime responds: {'; '.join(problems)}"
        if len(candidates) > 3:
            where = f"at any of {len(candidates)} known paths such as {candidates[-3]}"
        else:
            where = f"at {' or '.join(candidates)}"
        return (
            f"there is no socket {where}; name the right one with --cri-endpoint, "
            "and mount its folder if the daemon runs in a pod"
        )


async def _has_pods(endpoint: str) -> bool:
    async with GrpcRuntime(endpoint) as runtime:
        await runtime.version()
        containers = await runtime.list_containers()
    return any(container.pod_uid for container in containers)


def _is_socket(endpoint: str) -> bool:
    """Whether there is a socket at the path. Raises: OSError."""
    return stat.S_ISSOCK(os.stat(socket_path(endpoint)).st_mode)


def _problem_at(endpoint: str, failure: str) -> str:
    text = failure if endpoint in failure else f"{endpoint}: {failure}"
    if "Permission denied" in failure:
        return f"{text}; run the daemon as a user that may open the socket, most often root"
    return text
