"""Markers as the controllers use them: validated, ordered and resolved once per spec.

Invalid parts are dropped here one by one, so the controllers never see them. An invalid key drops that key, an
invalid probe drops that probe, and an invalid selector matches nothing. The errors are kept for the marker's status.
"""

from collections.abc import Collection, Mapping
from itertools import count
from typing import Final, Literal, NamedTuple

import msgspec
from cachetools import LRUCache, cached

from kruise_probe.api.core import GRPCAction, HTTPGetAction, Probe, TCPSocketAction
from kruise_probe.api.extraction import FromMessage, PatternBudget, PatternError
from kruise_probe.api.field_errors import FieldError, first_errors
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.labels import (
    Selector,
    annotation_key_error,
    annotation_value_error,
    compile_selector,
    label_key_error,
    label_value_error,
)
from kruise_probe.api.pods import Container, Pod
from kruise_probe.api.reserved import (
    reserved_annotation_error,
    reserved_condition_error,
    reserved_label_error,
)
from kruise_probe.api.v1alpha1 import (
    MAX_FROM_MESSAGE,
    ContainerProbe,
    MarkerPolicy,
    PodContainerProbe,
    PodProbeMarker,
    ProbeState,
    stored_bytes,
)
from kruise_probe.api.validation import (
    CEL_BOUNDS,
    clamp_timeout,
    fields_without_effect,
    is_valid_probe,
    marker_errors,
)

HASHES: Final = 1024
"""Bound of the cache of hashes of probes with a port name: one per probe and number of its port."""

_NO_SELECTOR: Final = Selector(())
_next_serial: Final = count().__next__


MarkField = Literal["labels", "annotations"]
"""The two kinds of marks with keys: the name of their attribute."""


class Marks(NamedTuple):
    """The labels and annotations that one policy writes, without invalid and reserved ones."""

    labels: Mapping[str, str | FromMessage]
    annotations: Mapping[str, str | FromMessage]


NO_MARKS: Final = Marks({}, {})


class CompiledProbe(NamedTuple):
    """One valid probe of a marker.

    Attributes:
        probe: the name within the marker; `name` is `<marker>#<probe>`.
        container_probe: the probe for NodePodProbe.spec, with scheme and path filled in.
        port_name: the name of the container port, to be resolved for each pod; empty for a numeric port.
        condition_type: empty if there is none, or if it is invalid or reserved.
        policies: by state.
        entry_bytes: size of `container_probe` as stored in a NodePodProbe.
        hash: of `container_probe`; see `hash_on` for a port name.
    """

    probe: str
    container_probe: ContainerProbe
    port_name: str
    condition_type: str
    policies: Mapping[str, Marks]
    entry_bytes: int
    hash: str

    @property
    def name(self) -> str:
        return self.container_probe.name

    @property
    def container(self) -> str:
        return self.container_probe.container_name

    def on(self, container: Container) -> ContainerProbe:
        """The probe for this container: with the number of its port, if the container has a port of that name."""
        number = self._port_number(container)
        return self.container_probe if number is None else _with_port(self.container_probe, number)

    def hash_on(self, pod: Pod) -> str:
        """The hash of the probe on this pod, as the daemon reports it with a result."""
        container = pod.container(self.container) if self.port_name else None
        number = self._port_number(container) if container is not None else None
        return self.hash if number is None else _hash_with_port(self, number)

    def _port_number(self, container: Container) -> int | None:
        return container.port_number(self.port_name) if self.port_name else None


class CompiledMarker(msgspec.Struct, frozen=True, eq=False):
    """Everything about a marker that does not depend on a pod. Compared by identity: one object per observed spec.

    Attributes:
        order: decides which marker owns a key that several claim: the older one, then by name.
        errors: the rules that the spec breaks. The invalid entries are not in `probes`.
        condition_types, labels, annotations: all names that its probes may write.
        from_message: whether any value is extracted from a message.
        fields_without_effect: fields of the spec that kubelet uses to restart containers.
        entry_bytes: size of all its probes as stored in a NodePodProbe.
        paused: its annotation pauses all of its probes.
        serial: unique number. As a cache key it keeps no marker alive.
    """

    key: NamespacedName
    generation: int
    order: tuple[str, NamespacedName]
    deleting: bool
    selector: Selector
    probes: tuple[CompiledProbe, ...]
    errors: tuple[FieldError, ...]
    condition_types: frozenset[str]
    labels: frozenset[str]
    annotations: frozenset[str]
    from_message: bool
    fields_without_effect: tuple[str, ...]
    entry_bytes: int
    paused: bool
    serial: int = msgspec.field(default_factory=_next_serial)

    def may_write(self, field: MarkField, key: str, value: str) -> bool:
        """Whether any policy sets the key to `value`. A value from the message may be any."""
        values = [
            getattr(marks, field).get(key)
            for probe in self.probes
            for marks in probe.policies.values()
        ]
        return any(each == value or isinstance(each, FromMessage) for each in values)

    @property
    def live(self) -> bool:
        """False for a marker that is being deleted: it claims nothing."""
        return not self.deleting


def compile_marker(
    marker: PodProbeMarker, *, allowed_labels: Collection[str] = ()
) -> CompiledMarker:
    """Validate and resolve a marker. Never raise: validation errors are in `errors`."""
    errors = first_errors(
        each
        for each in marker_errors(marker.spec, allowed_labels=allowed_labels)
        if each.kind not in CEL_BOUNDS
    )
    try:
        selector = compile_selector(marker.spec.selector)
    except ValueError:  # `errors` contains it with its field path
        selector = _NO_SELECTOR
    probes = _probes(marker, selector.keys, allowed_labels)
    policies = [marks for each in probes for marks in each.policies.values()]
    return CompiledMarker(
        key=marker.key,
        generation=marker.metadata.generation or 0,
        order=(marker.metadata.creation_timestamp or "", marker.key),
        deleting=marker.deleting,
        selector=selector,
        probes=probes,
        errors=tuple(errors),
        condition_types=frozenset(each.condition_type for each in probes if each.condition_type),
        labels=frozenset(key for marks in policies for key in marks.labels),
        annotations=frozenset(key for marks in policies for key in marks.annotations),
        from_message=any(
            isinstance(value, FromMessage)
            for marks in policies
            for values in marks
            for value in values.values()
        ),
        fields_without_effect=fields_without_effect(marker.spec),
        entry_bytes=sum(each.entry_bytes for each in probes),
        paused=marker.paused,
    )


def _probes(
    marker: PodProbeMarker, selector_keys: frozenset[str], allowed_labels: Collection[str]
) -> tuple[CompiledProbe, ...]:
    """The valid probes, in order; of several with one name only the first."""
    probes: dict[str, CompiledProbe] = {}
    allowed = _AllowedMarks(selector_keys, allowed_labels, PatternBudget())
    for written in marker.spec.probes or ():
        each = clamp_timeout(written)
        if each.name not in probes and _is_valid(each):
            container_probe, port_name = _container_probe(marker.metadata.name, each)
            probes[each.name] = CompiledProbe(
                probe=each.name,
                container_probe=container_probe,
                port_name=port_name,
                condition_type=_condition_type(each.pod_condition_type),
                policies=_policies(each.marker_policy or (), allowed),
                entry_bytes=stored_bytes(container_probe),
                hash=container_probe.hash,
            )
    return tuple(probes.values())


def _is_valid(probe: PodContainerProbe) -> bool:
    named = bool(probe.name) and "#" not in probe.name and bool(probe.container_name)
    return named and is_valid_probe(probe)


def _condition_type(condition_type: str | None) -> str:
    if (
        not condition_type
        or reserved_condition_error(condition_type)
        or label_key_error(condition_type)
    ):
        return ""
    return condition_type


class _AllowedMarks(NamedTuple):
    """The keys and patterns that the policies of one marker may use."""

    selector_keys: frozenset[str]
    allowed_labels: Collection[str]
    budget: PatternBudget

    def may_label(self, key: str) -> bool:
        return (
            key not in self.selector_keys
            and not reserved_label_error(key, self.allowed_labels)
            and not label_key_error(key)
        )

    def may_annotate(self, key: str) -> bool:
        return not reserved_annotation_error(key) and not annotation_key_error(key)


def _policies(policies: tuple[MarkerPolicy, ...], allowed: _AllowedMarks) -> Mapping[str, Marks]:
    """The policies by state. Of several policies for one state only the first is used."""
    by_state: dict[str, Marks] = {}
    for policy in policies:
        if policy.state in tuple(ProbeState) and policy.state not in by_state:
            by_state[policy.state] = _marks(policy, allowed)
    return by_state


def _marks(policy: MarkerPolicy, allowed: _AllowedMarks) -> Marks:
    """The static values, replaced by those from the message; of several values for one key the first is used."""
    labels: dict[str, str | FromMessage] = {
        key: value
        for key, value in (policy.labels or {}).items()
        if allowed.may_label(key) and not label_value_error(value)
    }
    annotations: dict[str, str | FromMessage] = {
        key: value
        for key, value in (policy.annotations or {}).items()
        if allowed.may_annotate(key) and not annotation_value_error(key, value)
    }
    for each in (policy.from_message or ())[:MAX_FROM_MESSAGE]:
        label, annotation, pattern = each.label or "", each.annotation or "", each.regex or ""
        try:
            size = allowed.budget.take(pattern)
        except PatternError:  # `errors` contains it with its field path
            continue
        if label and not annotation and allowed.may_label(label):
            _set_from_message(labels, label, pattern, size)
        elif annotation and not label and allowed.may_annotate(annotation):
            _set_from_message(annotations, annotation, pattern, size)
    return Marks(labels, annotations)


def _set_from_message(
    values: dict[str, str | FromMessage], key: str, pattern: str, size: int
) -> None:
    static = values.get(key)
    if not isinstance(static, FromMessage):
        values[key] = FromMessage(pattern, static, size)


def _container_probe(marker: str, probe: PodContainerProbe) -> tuple[ContainerProbe, str]:
    """Return the probe for NodePodProbe.spec and its port name.

    All defaults of both CRDs are filled in, so the stored object equals the written one and no write is repeated.
    Kruise's CRD defaults `service` to the empty string.
    """
    filled = probe.probe
    port: int | str = ""
    match filled.handler:
        case HTTPGetAction() as action:
            port = action.port
            http_get = msgspec.structs.replace(action.with_defaults(), host=None)
            filled = msgspec.structs.replace(filled, http_get=http_get)
        case TCPSocketAction() as action:
            port = action.port
            filled = msgspec.structs.replace(
                filled, tcp_socket=msgspec.structs.replace(action, host=None)
            )
        case GRPCAction() as action:
            filled = msgspec.structs.replace(
                filled, grpc=msgspec.structs.replace(action, service=action.service or "")
            )
        case _:
            pass
    return (
        msgspec.structs.replace(probe.entry(marker), probe=filled),
        port if isinstance(port, str) else "",
    )


@cached(LRUCache(HASHES), key=lambda probe, number: (probe.hash, number))
def _hash_with_port(probe: CompiledProbe, number: int) -> str:
    return _with_port(probe.container_probe, number).hash


def _with_port(container_probe: ContainerProbe, number: int) -> ContainerProbe:
    """Return the probe with its port name replaced by `number`."""
    probe = container_probe.probe
    changed: Probe
    if probe.http_get is not None:
        changed = msgspec.structs.replace(
            probe, http_get=msgspec.structs.replace(probe.http_get, port=number)
        )
    else:
        assert probe.tcp_socket is not None, "only http and tcp probes name ports"
        changed = msgspec.structs.replace(
            probe, tcp_socket=msgspec.structs.replace(probe.tcp_socket, port=number)
        )
    return msgspec.structs.replace(container_probe, probe=changed)
