"""Pods as the manager caches them, with what `status`, `explain` and `try` read in addition. Pure."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from kruise_probe.api.meta import Resource, decode_nulls
from kruise_probe.api.pod_wire import PodWire
from kruise_probe.api.pod_wire import project as project_pod
from kruise_probe.api.pods import Pod, PodCondition
from kruise_probe.api.times import parse_time

MAX_MESSAGE: Final = 200
"""Maximum characters of a container's termination message."""
_POD: Final = re.compile(r" pod=\S+\([-0-9a-f]{36}\)")
"""Name and uid of the pod in messages of kubelet."""


class _Waiting(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Running(msgspec.Struct, frozen=True, rename="camel"):
    started_at: str = ""


class _Terminated(msgspec.Struct, frozen=True, rename="camel"):
    exit_code: int | None = None
    reason: str = "Terminated"
    message: str = ""

    def __str__(self) -> str:
        text = f"{self.reason}, exit code {self.exit_code}"
        lines = self.message.strip().splitlines()
        if lines:
            last = lines[-1][:MAX_MESSAGE]
            text += f": {last}"
        return text


class _ContainerState(msgspec.Struct, frozen=True):
    waiting: _Waiting | None = None
    running: _Running | None = None
    terminated: _Terminated | None = None


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    """A container of the spec, or its status."""

    name: str
    state: _ContainerState = _ContainerState()
    last_state: _ContainerState = _ContainerState()

    @property
    def why_stopped(self) -> str:
        """The kubelet's reason why the container does not run."""
        terminated = self.state.terminated
        if terminated is not None:
            return str(terminated)
        waiting = self.state.waiting
        if waiting is None or not waiting.reason:
            return "not started yet"
        text = waiting.reason
        if waiting.message:
            message = _POD.sub("", waiting.message)
            text += f": {message}"
        last = self.last_state.terminated
        if last is not None:
            text += f"; last attempt: {last}"
        return text


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    init_containers: tuple[_Container, ...] = ()
    ephemeral_containers: tuple[_Container, ...] = ()
    host_network: bool = False


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    container_statuses: tuple[_Container, ...] = ()
    init_container_statuses: tuple[_Container, ...] = ()
    conditions: tuple[PodCondition, ...] = ()


class _Details(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


class SeenPod(Pod, frozen=True, kw_only=True):
    """A pod as the manager caches it, with fields that only `status`, `explain` and `try` need.

    Attributes:
        stopped: for each container that does not run, the reason from kubelet.
        running_since: for each running container, its start time.
        ran: containers that ran and ended, so that there is a log.
        not_probed: init and ephemeral containers, which cannot be probed.
        unscheduled: the scheduler's message while the pod has no node.
        host_network: the pod uses the network of its node.
    """

    stopped: Mapping[str, str]
    running_since: Mapping[str, datetime]
    ran: frozenset[str]
    not_probed: frozenset[str]
    unscheduled: str
    host_network: bool


_decode_pod = msgspec.json.Decoder(PodWire).decode
_decode_details = msgspec.json.Decoder(_Details).decode


def _project(raw: msgspec.Raw) -> SeenPod:
    wire = decode_nulls(_decode_pod, raw)
    pod = project_pod(wire)
    details = decode_nulls(_decode_details, raw)
    status = details.status
    stopped: dict[str, str] = {}
    running_since: dict[str, datetime] = {}
    ran: set[str] = set()
    for container in (*status.container_statuses, *status.init_container_statuses):
        if container.state.terminated or container.last_state.terminated:
            ran.add(container.name)
        running = container.state.running
        if running is None:
            stopped[container.name] = container.why_stopped
        elif started_at := parse_time(running.started_at):
            running_since[container.name] = started_at
    spec = details.spec
    others = (*spec.init_containers, *spec.ephemeral_containers)
    names = {container.name for container in others}
    probed = {container.name for container in pod.containers}
    return SeenPod(
        *msgspec.structs.astuple(pod),
        stopped=stopped,
        running_since=running_since,
        ran=frozenset(ran),
        not_probed=frozenset(names - probed),
        unscheduled=_why_unscheduled(status.conditions),
        host_network=spec.host_network,
    )


def _why_unscheduled(conditions: Iterable[PodCondition]) -> str:
    for condition in conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message or ""
    return ""


SEEN_PODS: Final = Resource(
    "",
    "v1",
    "pods",
    "Pod",
    wire=msgspec.Raw,
    project=_project,
)
