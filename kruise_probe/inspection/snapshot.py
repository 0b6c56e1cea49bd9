"""All objects that the views are computed from, as they were at one time. Pods are as the manager caches them, with the
reason why a container does not run.

A kind that the user may not list is None; it is not treated as empty.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from kruise_probe.api.core import Lease, Node
from kruise_probe.api.meta import NamespacedName, Resource
from kruise_probe.api.names import LEADER_ELECTION_ID, REASON_DAEMON_STALE, daemon_lease_name
from kruise_probe.api.pods import Pod, PodCondition, PodWire
from kruise_probe.api.pods import project as project_pod
from kruise_probe.api.times import parse_time
from kruise_probe.api.v1alpha1 import NodePodProbe, PodProbeMarker
from kruise_probe.controllers.compiled import CompiledMarker, compile_marker
from kruise_probe.controllers.daemon_leases import is_outlived, why_stale
from kruise_probe.controllers.indexes import NodePodProbeIndex
from kruise_probe.controllers.matching import Matching

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


class SeenPod(Pod, frozen=True, kw_only=True):
    """A pod as the manager caches it, with fields that only `status`, `explain` and `try` need.

    Attributes:
        stopped: for each container that does not run, the reason from kubelet.
        running_since: for each running container, its start time.
        not_probed: init and ephemeral containers, which cannot be probed.
        unscheduled: the scheduler's message while the pod has no node.
        host_network: the pod uses the network of its node.
    """

    stopped: Mapping[str, str]
    running_since: Mapping[str, datetime]
    not_probed: frozenset[str]
    unscheduled: str
    host_network: bool


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
    unscheduled = (
        each for each in conditions if (each.type, each.status) == ("PodScheduled", "False")
    )
    running = {each.name: state for each in statuses if (state := each.state.get("running"))}
    return SeenPod(
        *msgspec.structs.astuple(pod),
        stopped={each.name: _why_stopped(each) for each in statuses if each.name not in running},
        running_since={
            name: at for name, state in running.items() if (at := parse_time(state.started_at))
        },
        not_probed=frozenset(each.name for each in others) - probed,
        unscheduled=next((each.message or "" for each in unscheduled), ""),
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


RECENT: Final = timedelta(seconds=5)
"""The manager may still be processing younger changes, so they are not reported as broken."""


DEFAULT_LEASE_SECONDS: Final = 60


class Renewal(NamedTuple):
    """When a Lease was renewed, and when it expires, by the stamp of the process that renewed it."""

    renewed: str
    expires_at: datetime
    duration: timedelta


def renewal_of(lease: Lease | None) -> Renewal | None:
    """The renewal of a Lease; None if it was never renewed."""
    spec = lease.spec if lease is not None else None
    renewed_at = parse_time(spec.renew_time) if spec is not None else None
    if spec is None or renewed_at is None:
        return None
    duration = timedelta(seconds=max(spec.lease_duration_seconds or DEFAULT_LEASE_SECONDS, 1))
    return Renewal(spec.renew_time or "", renewed_at + duration, duration)


def natural_order(name: str) -> list[tuple[int, str]]:
    """Sort key that compares numbers in names by value: game-2 before game-10."""
    parts = re.findall(r"([0-9]+)|([^0-9]+)", name)
    return [(int(number or 0), text) for number, text in parts]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The objects read; `markers` and `pods` of the requested namespaces. `allowed_labels` as the manager's flag."""

    now: datetime
    markers: tuple[PodProbeMarker, ...]
    pods: tuple[SeenPod, ...]
    nodes: Mapping[str, Node] | None = None
    node_pod_probes: Mapping[str, NodePodProbe] | None = None
    leases: Mapping[str, Lease] | None = None
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

    @cached_property
    def matching(self) -> Matching:
        """Which markers select which pods."""
        matching = Matching(self._pods_in)
        for marker in self.compiled.values():
            matching.set_marker(marker)
        return matching

    def _pods_in(self, namespace: str) -> list[SeenPod]:
        return [pod for pod in self.pods if pod.namespace == namespace]

    @cached_property
    def node_index(self) -> NodePodProbeIndex:
        """The entries and results of the NodePodProbes."""
        index = NodePodProbeIndex()
        for each in (self.node_pod_probes or {}).values():
            index.update(None, each)
        return index

    def pods_of(self, marker: CompiledMarker) -> list[SeenPod]:
        """The pods that `marker` selects, sorted by name: game-2 before game-10."""
        found = [self.pods_by_key[pod.key] for pod in self.matching.pods_of(marker)]
        return sorted(found, key=lambda each: natural_order(each.name))

    @cached_property
    def stale_reasons(self) -> Mapping[str, str]:
        """Why the results of a node are stale, by node.

        An expired stamp alone proves nothing if the node's clock is behind. A manager that leads has seen the renewals, so for
        one more duration of the Lease it decides.
        """
        found: dict[str, str] = {}
        leads = bool(self.leader and not self.manager_problem)
        reported: dict[str, str] = {}
        for pod in self.pods:
            for condition in pod.conditions:
                if condition.reason == REASON_DAEMON_STALE:
                    reported[pod.node] = (condition.message or "").partition(" Check ")[0]
        for node in {each.node for each in self.pods}:
            renewal = renewal_of((self.leases or {}).get(daemon_lease_name(node)))
            if renewal is None:  # A stale daemon stays stale if its Lease is deleted.
                if reported.get(node):
                    found[node] = reported[node]
                continue
            report = (self.node_pod_probes or {}).get(node)
            expired = self.now >= renewal.expires_at and not is_outlived(report, renewal.renewed)
            unsure = leads and self.now < renewal.expires_at + renewal.duration
            if expired and (node in reported or not unsure):
                found[node] = why_stale(node, renewal.renewed).partition(" Check ")[0]
        return found

    def has_no_daemon(self, node: str) -> bool:
        """Whether the daemon of `node` has neither a Lease nor a result."""
        if self.leases is None or self.node_pod_probes is None:
            return False
        report = self.node_pod_probes.get(node)
        reports = (report and report.status and report.status.pod_probe_statuses) or ()
        reported = any(each.probe_states for each in reports)
        return daemon_lease_name(node) not in self.leases and not reported

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
        renewal = renewal_of((self.leases or {}).get(LEADER_ELECTION_ID))
        if renewal is None or self.now < renewal.expires_at:
            return ""
        return f"no manager has renewed its Lease since {renewal.renewed} (last leader: {self.leader or 'none'})"

    def is_recent(self, *stamps: str | None, within: timedelta = RECENT) -> bool:
        """Whether the newest of `stamps` is so recent that the manager may still be processing it."""
        times = [at for at in map(parse_time, stamps) if at is not None]
        return bool(times) and self.now - max(times) < within
