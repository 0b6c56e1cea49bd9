"""Pods as the views show them: as the manager caches them, with the reason why a container does not run."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.kinds import Resource
from kruise_probe.api.pods import Pod, PodWire
from kruise_probe.api.pods import project as project_pod
from kruise_probe.api.times import parse_time

MAX_MESSAGE: Final = 200
"""Maximum characters of a container's termination message."""


class _Running(msgspec.Struct, frozen=True, rename="camel"):
    started_at: str | None = None


class _Stopped(msgspec.Struct, frozen=True, rename="camel"):
    reason: str | None = None
    message: str | None = None
    exit_code: int | None = None


class _State(msgspec.Struct, frozen=True):
    waiting: _Stopped | None = None
    running: _Running | None = None
    terminated: _Stopped | None = None


class _ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    state: _State = _State()
    last_state: _State = _State()


class _PodCondition(msgspec.Struct, frozen=True):
    type: str
    status: str
    message: str | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    container_statuses: tuple[_ContainerStatus, ...] | None = None
    init_container_statuses: tuple[_ContainerStatus, ...] | None = None
    conditions: tuple[_PodCondition, ...] | None = None


class _Named(msgspec.Struct, frozen=True):
    name: str


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    init_containers: tuple[_Named, ...] | None = None
    ephemeral_containers: tuple[_Named, ...] | None = None
    host_network: bool | None = None


class _Details(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


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
    return SeenPod(
        pod=pod,
        stopped={each.name: _why_stopped(each) for each in statuses if not each.state.running},
        running_since={
            each.name: at
            for each in statuses
            if each.state.running and (at := parse_time(each.state.running.started_at))
        },
        not_probed=frozenset(each.name for each in others) - probed,
        unscheduled=next(
            (
                each.message or ""
                for each in details.status.conditions or ()
                if (each.type, each.status) == ("PodScheduled", "False")
            ),
            "",
        ),
        host_network=bool(details.spec.host_network),
    )


def _why_stopped(status: _ContainerStatus) -> str:
    state, last = status.state, status.last_state.terminated
    if state.terminated:
        return _termination_text(state.terminated)
    if state.waiting and state.waiting.reason:
        detail = f": {state.waiting.message}" if state.waiting.message else ""
        before = f"; last attempt: {_termination_text(last)}" if last else ""
        return f"{state.waiting.reason}{detail}{before}"
    return "not started yet"


def _termination_text(ended: _Stopped) -> str:
    lines = (ended.message or "").strip().splitlines()
    message = f": {lines[-1][:MAX_MESSAGE]}" if lines else ""
    return f"{ended.reason or 'Terminated'}, exit code {ended.exit_code}{message}"


SEEN_PODS: Final = Resource("", "v1", "pods", "Pod", wire=msgspec.Raw, project=_project)
