"""Pods as the views show them: as the manager caches them, with the reason why a container does not run."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.kinds import Resource
from kruise_probe.api.pods import Pod, PodCondition, PodWire
from kruise_probe.api.pods import project as project_pod
from kruise_probe.api.times import parse_time

MAX_MESSAGE: Final = 200
"""Maximum characters of a container's termination message."""
_POD: Final = re.compile(r" pod=\S+\([-0-9a-f]{36}\)")
"""Name and uid of the pod in messages of kubelet."""


class _State(msgspec.Struct, frozen=True, rename="camel"):
    started_at: str | None = None
    reason: str | None = None
    message: str | None = None
    exit_code: int | None = None


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    """A container of the spec, or its status; the keys of the states are waiting, running and terminated."""

    name: str
    state: dict[str, _State | None] = {}
    last_state: dict[str, _State | None] = {}


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of spec and status together."""

    container_statuses: tuple[_Container, ...] | None = None
    init_container_statuses: tuple[_Container, ...] | None = None
    conditions: tuple[PodCondition, ...] | None = None
    init_containers: tuple[_Container, ...] | None = None
    ephemeral_containers: tuple[_Container, ...] | None = None
    host_network: bool | None = None


class _Details(msgspec.Struct, frozen=True):
    spec: _Part = _Part()
    status: _Part = _Part()


class SeenPod(msgspec.Struct, frozen=True):
    """A pod as the manager caches it, with fields that only `status`, `explain` and `try` need.

    Attributes:
        stopped: for each container that does not run, the reason from kubelet.
        running_since: for each running container, its start time.
        not_probed: init and ephemeral containers, which cannot be probed.
        unscheduled: the scheduler's message while the pod has no node.
        host_network: the pod uses the network of its node.
    """

    pod: Pod
    stopped: Mapping[str, str]
    running_since: Mapping[str, datetime]
    not_probed: frozenset[str]
    unscheduled: str
    host_network: bool

    @property
    def key(self) -> NamespacedName:
        return self.pod.key

    @property
    def uid(self) -> str:
        return self.pod.uid

    @property
    def resource_version(self) -> str:
        return self.pod.resource_version


_decode_pod = msgspec.json.Decoder(PodWire).decode
_decode_details = msgspec.json.Decoder(_Details).decode


def _project(raw: msgspec.Raw) -> SeenPod:
    details = _decode_details(raw)
    statuses = (
        *(details.status.container_statuses or ()),
        *(details.status.init_container_statuses or ()),
    )
    pod = project_pod(_decode_pod(raw))
    probed = {each.name for each in pod.containers}
    others = (*(details.spec.init_containers or ()), *(details.spec.ephemeral_containers or ()))
    conditions = details.status.conditions or ()
    unscheduled = [
        each.message or ""
        for each in conditions
        if (each.type, each.status) == ("PodScheduled", "False")
    ]
    running = {each.name: state for each in statuses if (state := each.state.get("running"))}
    return SeenPod(
        pod=pod,
        stopped={each.name: _why_stopped(each) for each in statuses if each.name not in running},
        running_since={
            name: at for name, state in running.items() if (at := parse_time(state.started_at))
        },
        not_probed=frozenset(each.name for each in others) - probed,
        unscheduled="".join(unscheduled[:1]),
        host_network=bool(details.spec.host_network),
    )


def _why_stopped(status: _Container) -> str:
    waiting, last = status.state.get("waiting"), status.last_state.get("terminated")
    if terminated := status.state.get("terminated"):
        return _termination_text(terminated)
    if waiting and waiting.reason:
        detail = f": {_POD.sub('', waiting.message)}" if waiting.message else ""
        before = f"; last attempt: {_termination_text(last)}" if last else ""
        return f"{waiting.reason}{detail}{before}"
    return "not started yet"


def _termination_text(ended: _State) -> str:
    lines = (ended.message or "").strip().splitlines()
    message = f": {lines[-1][:MAX_MESSAGE]}" if lines else ""
    return f"{ended.reason or 'Terminated'}, exit code {ended.exit_code}{message}"


SEEN_PODS: Final = Resource("", "v1", "pods", "Pod", wire=msgspec.Raw, project=_project)
