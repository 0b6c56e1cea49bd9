"""All objects that the views are computed from, as they were at one time.

A kind that the user may not list is None; it is not treated as empty.

Source: no counterpart.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

import msgspec

from kruise_probe.api.core import Lease, Node
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.kinds import Resource
from kruise_probe.api.names import LEADER_ELECTION_ID, SHARED_PORTS_ANNOTATION, agent_lease_name
from kruise_probe.api.pods import Pod, PodWire
from kruise_probe.api.pods import project as project_pod
from kruise_probe.api.times import parse_time
from kruise_probe.api.v1alpha1 import (
    ContainerProbeState,
    NodePodProbe,
    PodProbe,
    PodProbeMarker,
)
from kruise_probe.controllers.compiled import CompiledMarker, compile_marker
from kruise_probe.controllers.selector_cycles import Cycles, cycle_text, find_cycles
from kruise_probe.controllers.staleness import newest_result_at, observed_renewal, stale_message

MAX_MESSAGE: Final = 200
"""Maximum characters of a container's termination message."""

RECENT: Final = timedelta(seconds=5)
"""The manager may still be processing younger changes, so they are not reported as broken."""


def natural_order(name: str) -> list[tuple[int, str]]:
    """Sort key that compares numbers in names by value: game-2 before game-10."""
    parts = re.findall(r"([0-9]+)|([^0-9]+)", name)
    return [(int(number or 0), text) for number, text in parts]


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
_decode_shared_ports = msgspec.json.Decoder(dict[int, str]).decode


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


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The objects read; `markers` and `pods` of the requested namespaces. `allowed_labels` as the manager's flag."""

    now: datetime
    markers: tuple[PodProbeMarker, ...]
    pods: tuple[SeenPod, ...]
    nodes: Mapping[str, Node] | None
    node_pod_probes: Mapping[str, NodePodProbe] | None
    leases: Mapping[str, Lease] | None
    allowed_labels: frozenset[str] = frozenset()

    @cached_property
    def sources(self) -> Mapping[NamespacedName, PodProbeMarker]:
        return {each.key: each for each in self.markers}

    @cached_property
    def compiled(self) -> Mapping[NamespacedName, CompiledMarker]:
        return {
            each.key: compile_marker(each, allowed_labels=self.allowed_labels)
            for each in self.markers
        }

    @cached_property
    def pods_by_key(self) -> Mapping[NamespacedName, SeenPod]:
        return {each.key: each for each in self.pods}

    def markers_in(self, namespace: str) -> Sequence[CompiledMarker]:
        """The markers of a namespace."""
        return self._by_namespace.get(namespace, ())

    def markers_of(self, pod: Pod) -> tuple[CompiledMarker, ...]:
        """The markers that select `pod`, in order of precedence."""
        found = [
            each for each in self.markers_in(pod.namespace) if each.selector.matches(pod.labels)
        ]
        return tuple(sorted(found, key=lambda each: each.order))

    def pods_of(self, marker: CompiledMarker) -> list[SeenPod]:
        """The pods that `marker` selects, sorted by name: game-2 before game-10."""
        found = [
            each
            for each in self.pods
            if each.pod.namespace == marker.key.namespace
            and marker.selector.matches(each.pod.labels)
        ]
        return sorted(found, key=lambda each: natural_order(each.pod.name))

    def pods_in(self, namespace: str) -> list[Pod]:
        """All pods of a namespace, sorted by name."""
        found = [each.pod for each in self.pods if each.pod.namespace == namespace]
        return sorted(found, key=lambda pod: natural_order(pod.name))

    @cached_property
    def _by_namespace(self) -> Mapping[str, list[CompiledMarker]]:
        found: dict[str, list[CompiledMarker]] = {}
        for each in self.compiled.values():
            found.setdefault(each.key.namespace, []).append(each)
        return found

    def cycle_through(self, marker: NamespacedName) -> str:
        """The cycle of labels that `marker` is part of, or the empty string."""
        return cycle_text(self._cycles[marker.namespace].through(marker))

    @cached_property
    def _cycles(self) -> Mapping[str, Cycles]:
        return {name: find_cycles(markers) for name, markers in self._by_namespace.items()}

    def entry_of(self, pod: Pod) -> PodProbe | None:
        """The pod's entry in NodePodProbe.spec of its node."""
        return self._entries.get((pod.node, pod.uid))

    @cached_property
    def _entries(self) -> Mapping[tuple[str, str], PodProbe]:
        return {
            (node, entry.uid): entry
            for node, report in (self.node_pod_probes or {}).items()
            for entry in report.spec.pod_probes or ()
        }

    def states_of(self, pod: Pod) -> Mapping[str, ContainerProbeState]:
        """The states that the node reported for the pod, by `<marker>#<probe>`."""
        return self._states.get((pod.node, pod.namespace, pod.name, pod.uid), {})

    @cached_property
    def _states(self) -> Mapping[tuple[str, str, str, str], Mapping[str, ContainerProbeState]]:
        return {
            (node, pod.namespace, pod.name, pod.uid): {
                state.name: state for state in pod.probe_states or ()
            }
            for node, report in (self.node_pod_probes or {}).items()
            if report.status
            for pod in report.status.pod_probe_statuses or ()
        }

    def stale_reason(self, node: str) -> str:
        """Why the results of `node` are stale, or the empty string."""
        return self._stale_reasons.get(node, "")

    @cached_property
    def _stale_reasons(self) -> Mapping[str, str]:
        found = {}
        for node in {each.pod.node for each in self.pods}:
            lease = (self.leases or {}).get(agent_lease_name(node))
            renewal = observed_renewal(lease, None, self.now) if lease else None
            report = (self.node_pod_probes or {}).get(node)
            newest = newest_result_at(report.status if report else None)
            found[node] = stale_message(node, renewal, newest, self.now)
        return found

    def has_no_daemon(self, node: str) -> bool:
        """Whether the daemon of `node` has neither a Lease nor a result."""
        if self.leases is None or self.node_pod_probes is None:
            return False
        report = self.node_pod_probes.get(node)
        reports = (report and report.status and report.status.pod_probe_statuses) or ()
        reported = any(each.probe_states for each in reports)
        return agent_lease_name(node) not in self.leases and not reported

    def shared_port_owner(self, pod: Pod, port: int | None) -> str:
        """The other pod whose process answers for `pod` at this port, or empty. Only the playground reports any."""
        owner = self._shared_ports.get(port or 0, "")
        return "" if owner == str(pod.key) else owner

    @cached_property
    def _shared_ports(self) -> Mapping[int, str]:
        found: dict[int, str] = {}
        for node in (self.nodes or {}).values():
            value = (node.metadata.annotations or {}).get(SHARED_PORTS_ANNOTATION, "{}")
            with suppress(msgspec.MsgspecError):
                found |= _decode_shared_ports(value)
        return found

    @cached_property
    def leader(self) -> str:
        """The holder of the manager's Lease; empty if there is no such Lease, or if it may not be read."""
        lease = (self.leases or {}).get(LEADER_ELECTION_ID)
        return (lease and lease.spec and lease.spec.holder_identity) or ""

    @cached_property
    def manager_problem(self) -> str:
        """That the manager's Lease has expired, or empty.

        A manager without leader election renews no Lease, so an expired one alone proves nothing.
        """
        lease = (self.leases or {}).get(LEADER_ELECTION_ID)
        renewal = observed_renewal(lease, None, self.now) if lease else None
        if renewal is None or self.now < renewal.expires_at:
            return ""
        return f"no manager has renewed its Lease since {renewal.renewed} (last leader: {self.leader or 'none'})"

    def is_recent(self, *stamps: str | None, within: timedelta = RECENT) -> bool:
        """Whether the newest of `stamps` is so recent that the manager may still be processing it."""
        times = [at for at in map(parse_time, stamps) if at is not None]
        return bool(times) and self.now - max(times) < within
