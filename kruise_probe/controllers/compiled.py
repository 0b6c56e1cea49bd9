"""Markers as the controllers use them: validated, ordered and resolved once per spec.

What has an error in `api.validation` is dropped here, so the controllers never see it. An invalid key drops that key, an
invalid probe drops that probe, and an invalid selector matches nothing. The errors are kept for the marker's status.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import count
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kruise_probe.api.caches import STRING_BYTES, Cache
from kruise_probe.api.extraction import FromMessage, MarkValue, PatternBudget
from kruise_probe.api.labels import Selector, compile_selector
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import ProbeName
from kruise_probe.api.node_pod_probe import stored_bytes
from kruise_probe.api.pods import Container, Mark, Pod
from kruise_probe.api.probe import GRPCAction, HTTPGetAction, ProbeAction, TCPSocketAction
from kruise_probe.api.problems import CEL_BOUNDS, Problem, first_errors
from kruise_probe.api.v1alpha1 import (
    ContainerProbe,
    MarkerPolicy,
    PodContainerProbe,
    PodProbeMarker,
    ProbeState,
    WhenStale,
    WhenTerminating,
    mentioned_keys,
)
from kruise_probe.api.validation import (
    clamp_timeout,
    fields_without_effect,
    marker_errors,
)

ENTRY_BYTES: Final = 64 * 1024
"""Maximum size of all probes of one marker for one pod, as stored in a NodePodProbe."""

_NO_SELECTOR: Final = Selector(())
_next_serial: Final = count().__next__

Wanted = Mapping[Mark, MarkValue]
"""The labels and annotations of a pod in one state of a probe; None for keys that must be absent."""


def key_of_marker(namespace: str, probe: str) -> NamespacedName:
    """The key of the marker of a probe with this name, `<marker>#<probe>`."""
    return NamespacedName(namespace, ProbeName.parse(probe).marker)


class Exclusivity(NamedTuple):
    """One pod of a group carries the marks of Succeeded; see `roles`. `group_label` is empty for one group of all pods."""

    group_label: str
    has_epochs: bool


class CompiledProbe(NamedTuple):
    """One valid probe of a marker.

    Attributes:
        name: `<marker>#<probe>`.
        probe: the name within the marker.
        container_probe: the probe for NodePodProbe.spec, with scheme and path filled in.
        port_name: the name of the container port, to be resolved for each pod; empty for a numeric port.
        condition_type: empty if there is none, or if it is invalid or reserved.
        policies: the labels and annotations by state, without invalid and reserved ones. Without a policy for Unknown there
            is no entry for Unknown, which then changes no marks.
        marks: all that the probe may write: labels, annotations, condition type.
        entry_bytes: size of `container_probe` as stored in a NodePodProbe.
        hash: of `container_probe`; see `hash_on` for a port name.
        keeps_when_stale: a silent daemon changes nothing.
        runs_while_terminating: it runs until its container ends, and its marks follow.
        exclusive: None if each pod may carry the marks of Succeeded.
        is_pruned: the CRD of NodePodProbes drops a field that changes its verdicts, so it is not probed.
    """

    name: str
    probe: str
    container_probe: ContainerProbe
    port_name: str
    condition_type: str
    policies: Mapping[str, Wanted]
    marks: tuple[Mark, ...]
    entry_bytes: int
    hash: str
    keeps_when_stale: bool
    runs_while_terminating: bool
    exclusive: Exclusivity | None
    is_pruned: bool = False

    @property
    def container(self) -> str:
        return self.container_probe.container_name

    def wanted(self) -> Mapping[str, Wanted]:
        """By state all keys of the policies: with the state's value, or None. Not kept: it is many times larger."""
        keys = [mark for mark in self.marks if mark.field != "conditions"]
        wanted = {}
        for state, values in self.policies.items():
            of_state = {mark: values.get(mark) for mark in keys}
            wanted[state] = of_state
        return wanted

    def on(self, container: Container) -> ContainerProbe:
        """The probe for this container: with the number of its port, if the container has a port of that name."""
        number = self._port_number(container)
        if number is None:
            return self.container_probe
        return _with_port(self.container_probe, number)

    def hash_on(self, pod: Pod) -> str:
        """The hash of the probe on this pod, as the daemon reports it with a result."""
        if not self.port_name:  # the common case
            return self.hash
        number = self._port_number(pod.container(self.container))
        if number is None:
            return self.hash
        key = (self.hash, number)
        return _hashes.find(key, lambda _: _with_port(self.container_probe, number).hash)

    def _port_number(self, container: Container | None) -> int | None:
        if container is None or not self.port_name:
            return None
        return container.port_number(self.port_name)


class CompiledMarker(msgspec.Struct, frozen=True, eq=False):
    """Everything about a marker that does not depend on a pod. Compared by identity: one object per observed spec.

    Attributes:
        order: decides which marker owns a key that several claim: the older one, then by name.
        errors: the rules that the spec breaks. The invalid entries are not in `probes`.
        marks: all marks that its probes may write.
        fields_without_effect: fields of the spec that kubelet uses to restart containers.
        entry_bytes: size of all its probes as stored in a NodePodProbe.
        keys: the number of keys that it mentions, also invalid ones, as the API server counts them.
        label_keys: the labels of a pod that decide whether it is selected, and to which groups it belongs.
        paused: its annotation pauses all of its probes.
        with_criteria: the probes with a field that changes the meaning of their results.
        serial: unique number. As a cache key it keeps no marker alive.
    """

    key: NamespacedName
    generation: int
    order: tuple[str, NamespacedName]
    deleting: bool
    selector: Selector
    probes: tuple[CompiledProbe, ...]
    errors: tuple[Problem, ...]
    marks: frozenset[Mark]
    fields_without_effect: tuple[str, ...]
    entry_bytes: int
    keys: int
    paused: bool
    label_keys: frozenset[str]
    with_criteria: tuple[CompiledProbe, ...]
    serial: int = msgspec.field(default_factory=_next_serial)

    @property
    def pod_view(self) -> object:
        """All that decides what is written to pods: equal for an edit of period, initial delay and thresholds only."""
        probes = []
        sizes = []
        for probe in self.probes:
            view = (
                probe.name,
                probe.container,
                probe.hash,
                probe.condition_type,
                probe.policies,
                probe.keeps_when_stale,
                probe.runs_while_terminating,
                probe.exclusive,
            )
            probes.append(view)
            sizes.append(probe.entry_bytes)
        if self.entry_bytes <= ENTRY_BYTES:
            sizes = []  # no entry is left out
        return self.deleting, self.paused, self.selector, self.keys, probes, sizes


class _Invalid:
    """The paths and keys of a marker that have an error."""

    def __init__(self, errors: Iterable[Problem]) -> None:
        self._keys = {(error.path, error.key) for error in errors}
        self._paths = {path for path, _ in self._keys}

    def has_key(self, path: str, key: str) -> bool:
        return (path, key) in self._keys

    def has_any(self, path: str, fields: Iterable[str] = ("",)) -> bool:
        """Whether one of these fields of `path` has an error, or a key of it."""
        return any(path + field in self._paths for field in fields)

    def has_below(self, path: str) -> bool:
        return any(invalid.startswith(path) for invalid in self._paths)


def compile_marker(
    marker: PodProbeMarker,
    *,
    allowed_labels: Collection[str] = (),
    pruned_fields: Collection[str] = (),
) -> CompiledMarker:
    """Validate and resolve a marker. Never raise: validation errors are in `errors`.

    `pruned_fields` are those of `v1alpha1.CRITERIA` that the CRD of NodePodProbes drops.
    """
    spec = marker.spec
    metadata = marker.metadata
    found = marker_errors(spec, allowed_labels=allowed_labels)
    errors = [error for error in found if error.reason not in CEL_BOUNDS]
    invalid = _Invalid(errors)
    selector = _NO_SELECTOR
    if not invalid.has_below("spec.selector"):
        selector = compile_selector(spec.selector)
    probes = _probes(marker, invalid, pruned_fields)
    marks: set[Mark] = set()
    label_keys = set(selector.keys)
    entry_bytes = 0
    for probe in probes:
        marks.update(probe.marks)
        entry_bytes += probe.entry_bytes
        if probe.exclusive is not None and probe.exclusive.group_label:
            label_keys.add(probe.exclusive.group_label)
    with_criteria = [probe for probe in probes if probe.container_probe.criteria]
    return CompiledMarker(
        key=marker.key,
        generation=metadata.generation or 0,
        order=(metadata.creation_timestamp or "", marker.key),
        deleting=marker.deleting,
        selector=selector,
        probes=probes,
        errors=tuple(first_errors(errors)),
        marks=frozenset(marks),
        fields_without_effect=fields_without_effect(spec),
        entry_bytes=entry_bytes,
        keys=mentioned_keys(spec.probes),
        paused=marker.paused,
        label_keys=frozenset(label_keys),
        with_criteria=tuple(with_criteria),
    )


_NEEDED: Final = (
    ".name",
    ".containerName",
    ".extract.regex",
    ".successWhen.regex",
    # Several pods could carry the marks of an invalid role.
    ".markerPolicy",
    ".exclusive.groupByLabel",
    ".exclusive.epoch.regex",
)
"""Fields without which a probe cannot be used."""


def _probes(
    marker: PodProbeMarker,
    invalid: _Invalid,
    pruned_fields: Collection[str],
) -> tuple[CompiledProbe, ...]:
    """The valid probes, in order."""
    probes = []
    for index, written in enumerate(marker.spec.probes):
        path = f"spec.probes[{index}]"
        probe = clamp_timeout(written)
        if invalid.has_any(path, _NEEDED):
            continue
        if any(probe.errors()):
            continue
        compiled = _compiled(marker.metadata.name, probe, path, invalid)
        criteria = set(compiled.container_probe.criteria)
        if not criteria.isdisjoint(pruned_fields):
            compiled = compiled._replace(is_pruned=True)
        probes.append(compiled)
    return tuple(probes)


def _compiled(
    marker: str,
    probe: PodContainerProbe,
    path: str,
    invalid: _Invalid,
) -> CompiledProbe:
    container_probe, port_name = _container_probe(marker, probe)
    condition_type = probe.pod_condition_type or ""
    if invalid.has_any(f"{path}.podConditionType"):
        condition_type = ""
    policies = _policies(probe, path, invalid)
    return CompiledProbe(
        name=container_probe.name,
        probe=probe.name,
        container_probe=container_probe,
        port_name=port_name,
        condition_type=condition_type,
        policies=policies,
        marks=_marks(policies, condition_type),
        entry_bytes=stored_bytes(container_probe),
        hash=container_probe.hash,
        keeps_when_stale=probe.when_stale == WhenStale.KEEP,
        runs_while_terminating=probe.when_terminating == WhenTerminating.PROBE,
        exclusive=_exclusivity(probe),
    )


def _exclusivity(probe: PodContainerProbe) -> Exclusivity | None:
    if probe.exclusive is None:
        return None
    group_label = probe.exclusive.group_by_label or ""
    return Exclusivity(group_label, has_epochs=probe.epoch is not None)


def _policies(
    probe: PodContainerProbe,
    path: str,
    invalid: _Invalid,
) -> Mapping[str, Wanted]:
    """The values of each policy, by state; Succeeded and Failed have one, which may be empty."""
    policies: dict[str, Wanted] = {ProbeState.SUCCEEDED: {}, ProbeState.FAILED: {}}
    for number, policy in enumerate(probe.marker_policy):
        policy_path = f"{path}.markerPolicy[{number}]"
        if invalid.has_any(policy_path, ("", ".state")):
            continue
        policies[policy.state] = _values(policy, policy_path, invalid)
    return policies


def _marks(policies: Mapping[str, Wanted], condition_type: str) -> tuple[Mark, ...]:
    """The labels, then the annotations, then the condition type."""
    keys: set[Mark] = set()
    for values in policies.values():
        keys.update(values)
    marks = sorted(keys, key=lambda mark: (mark.field == "annotations", mark.name))
    if condition_type:
        condition = Mark("conditions", condition_type)
        marks.append(condition)
    return tuple(marks)


def _values(
    policy: MarkerPolicy,
    path: str,
    invalid: _Invalid,
) -> Wanted:
    """The valid static values, replaced by those from the message."""
    values: dict[Mark, MarkValue] = {}
    for key, value in policy.labels.items():
        if not invalid.has_key(f"{path}.labels", key):
            mark = Mark("labels", key)
            values[mark] = value
    for key, value in policy.annotations.items():
        if not invalid.has_key(f"{path}.annotations", key):
            mark = Mark("annotations", key)
            values[mark] = value
    for index, wanted in enumerate(policy.from_message):
        item = f"{path}.fromMessage[{index}]"
        if invalid.has_any(item, ("", ".label", ".annotation", ".regex")):
            continue
        mark = Mark("annotations", wanted.annotation or "")
        if wanted.label:
            mark = Mark("labels", wanted.label)
        static = values.get(mark)
        if isinstance(static, FromMessage):  # not in a valid marker
            continue
        pattern = wanted.regex or ""
        instructions = PatternBudget().take(pattern)
        values[mark] = FromMessage(pattern, static, instructions)
    return values


def _container_probe(marker: str, probe: PodContainerProbe) -> tuple[ContainerProbe, str]:
    """Return the probe for NodePodProbe.spec and its port name.

    All defaults of both CRDs are filled in, so the stored object equals the written one and no write is repeated.
    Kruise's CRD defaults `service` to the empty string.
    """
    filled: dict[str, ProbeAction] = {}
    handler = probe.probe.handler
    match handler:
        case HTTPGetAction():
            with_scheme = handler.with_defaults()
            filled["http_get"] = replace(with_scheme, host=None)
        case TCPSocketAction():
            filled["tcp_socket"] = replace(handler, host=None)
        case GRPCAction():
            service = handler.service or ""
            filled["grpc"] = replace(handler, service=service)
        case _:
            pass
    with_defaults = replace(probe.probe, **filled)
    entry = probe.entry(marker)
    entry = replace(entry, probe=with_defaults)
    port = getattr(handler, "port", None)
    if isinstance(port, str):
        return entry, port
    return entry, ""


_HASH_BYTES: Final = 4 * STRING_BYTES
_hashes = Cache[tuple[str, int], str](lambda *_: _HASH_BYTES)
"""By hash of a probe with a port name, and number of the port."""


def _with_port(container_probe: ContainerProbe, number: int) -> ContainerProbe:
    """Return the probe with its port name replaced by `number`."""
    probe = container_probe.probe
    field = "http_get"
    if probe.http_get is None:
        field = "tcp_socket"
    named = getattr(probe, field)
    numbered = replace(named, port=number)
    with_number = replace(probe, **{field: numbered})
    return replace(container_probe, probe=with_number)
