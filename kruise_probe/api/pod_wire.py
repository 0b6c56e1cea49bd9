"""Decodes a Pod and reduces it to the fields that the manager uses.

The pod list uses most of the manager's memory. `PodWire` is decoded, and `Pod` is cached: flat, with shared parts
(containers of one template, node names) stored once.
"""

from collections.abc import Iterable, Mapping
from sys import getsizeof, intern
from typing import Final

import msgspec
from msgspec.structs import astuple

from kruise_probe.api.caches import (
    ITEM_BYTES,
    OBJECT_BYTES,
    STRING_BYTES,
    Cache,
    sizes_of,
    text_bytes,
)
from kruise_probe.api.managed_fields import ABSENT, ManagedFields, check_keys, owned_in
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import (
    LAST_APPLIED_ANNOTATION,
    MIRROR_POD_ANNOTATION,
    NATIVE_POD_CONDITIONS,
)
from kruise_probe.api.pods import (
    FEW_CONDITIONS,
    FINISHED_PHASES,
    NO_EXIT_CODES,
    Container,
    Pod,
    PodCondition,
)
from kruise_probe.api.structs import Wire

SHARED_BYTES = 512
"""Longer labels or annotations are not cached: they are mostly unique to one pod."""


PAIR_BYTES: Final = 2 * STRING_BYTES + ITEM_BYTES
"""A label or an annotation without its characters."""


CONTAINER_BYTES: Final = 512


PORT_BYTES: Final = 256
"""Upper estimates of the memory of a container and of a port, as decoded and as kept. Their names have at most 63 characters."""


_NONE: frozenset[str] = frozenset()


class _AnyObject(Wire, frozen=True):
    """Decodes any object; only its presence is used."""


class ContainerPort(Wire, frozen=True):
    container_port: int
    name: str | None = None


class _ContainerWire(Wire, frozen=True):
    name: str
    ports: tuple[ContainerPort, ...] = ()
    startup_probe: _AnyObject | None = None
    restart_policy: str | None = None
    restart_policy_rules: tuple[_AnyObject, ...] = ()


class _Meta(Wire, frozen=True):
    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    labels: msgspec.Raw = ABSENT
    annotations: msgspec.Raw = ABSENT
    managed_fields: tuple[ManagedFields, ...] = ()


class _ReadinessGate(Wire, frozen=True):
    condition_type: str


class _Spec(Wire, frozen=True):
    node_name: str | None = None
    containers: tuple[_ContainerWire, ...] = ()
    init_containers: tuple[_ContainerWire, ...] = ()
    readiness_gates: tuple[_ReadinessGate, ...] = ()
    restart_policy: str | None = None


class _Terminated(Wire, frozen=True):
    exit_code: int = 0


class _ContainerState(Wire, frozen=True):
    terminated: _Terminated | None = None


class _ContainerStatus(Wire, frozen=True):
    name: str
    started: bool | None = None
    state: _ContainerState | None = None


class _Status(Wire, frozen=True):
    phase: str | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[_ContainerStatus, ...] = ()
    init_container_statuses: tuple[_ContainerStatus, ...] = ()


def containers_bytes(containers: Iterable[Container | _ContainerWire]) -> int:
    """Upper estimate of the memory of containers, as decoded and as kept."""
    size = OBJECT_BYTES
    for container in containers:
        size += CONTAINER_BYTES + PORT_BYTES * len(container.ports)
    return size


_Shape = tuple[tuple[_ContainerWire, ...], tuple[_ContainerWire, ...]]
"""The containers and init containers of a pod template."""


class PodWire(Wire, frozen=True):
    """A decoded pod before `project`."""

    metadata: _Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()


_map_decoder = msgspec.json.Decoder(dict[str, str] | None)


def project(wire: PodWire) -> Pod:
    """Convert a decoded pod to a `Pod`; the wire struct may be dropped afterwards."""
    meta = wire.metadata
    spec = wire.spec
    status = wire.status
    annotations = _annotations(meta.annotations)
    shared = _with_shared_texts
    if len(status.conditions) > FEW_CONDITIONS:
        shared = _shared_condition
    initialized = False
    ours: list[PodCondition] = []
    for condition in status.conditions:
        kind = condition.type
        if kind not in NATIVE_POD_CONDITIONS:
            ours.append(shared(condition))
        elif kind == "Initialized":
            initialized = condition.status == "True"
    return Pod(
        NamespacedName(intern(meta.namespace or ""), meta.name),
        meta.uid,
        meta.resource_version,
        _shared_map(meta.labels),
        annotations,
        intern(spec.node_name or ""),
        status.pod_ip or "",
        intern(status.phase or ""),
        meta.deletion_timestamp is not None,
        MIRROR_POD_ANNOTATION in annotations,
        initialized,
        _containers(spec),
        _started(status),
        _gates(spec),
        tuple(ours),
        *owned_in(meta.managed_fields),
        _exit_codes(spec, status),
    )


def _shared_condition(condition: PodCondition) -> PodCondition:
    """One object for all pods that have the same condition since the same second. A pod may have hundreds of conditions."""
    made = _with_shared_texts(condition)
    return _conditions[made]


def _with_shared_texts(condition: PodCondition) -> PodCondition:
    """The same condition with texts that all pods share."""
    return PodCondition(
        intern(condition.type),
        intern(condition.status),
        _shared_text(condition.reason),
        _shared_text(condition.message),
        _shared_text(condition.last_probe_time),
        _shared_text(condition.last_transition_time),
    )


def _shared_text(text: str | None) -> str | None:
    return text and intern(text)


def _condition_bytes(condition: PodCondition, _: object) -> int:
    """With all texts: whoever writes a condition chooses their lengths."""
    return OBJECT_BYTES + sum(map(getsizeof, astuple(condition)))


def _itself(condition: PodCondition) -> PodCondition:
    return condition


_conditions = Cache[PodCondition, PodCondition](_condition_bytes, _itself)


def _shared_map(encoded: msgspec.Raw) -> Mapping[str, str]:
    """Decode labels or annotations, once for all pods with equal bytes; pods of one template mostly share them."""
    if len(encoded) > SHARED_BYTES:
        return _decoded_map(encoded)
    return _maps[bytes(encoded)]


def _decoded_map(encoded: bytes | msgspec.Raw) -> Mapping[str, str]:
    check_keys(encoded, b'":"')
    decoded = _map_decoder.decode(encoded) if encoded else None
    if not decoded:
        return {}
    return {intern(key): intern(text) for key, text in decoded.items()}


def _map_bytes(data: bytes, decoded: Mapping[str, str]) -> int:
    return text_bytes(data) + OBJECT_BYTES + PAIR_BYTES * len(decoded)


_maps = Cache[bytes, Mapping[str, str]](_map_bytes, _decoded_map)


def _annotations(encoded: msgspec.Raw) -> Mapping[str, str]:
    """Decode annotations without kubectl's last-applied configuration, which is long and unused."""
    found = _shared_map(encoded)
    if LAST_APPLIED_ANNOTATION not in found:
        return found
    return {key: text for key, text in found.items() if key != LAST_APPLIED_ANNOTATION}


def _containers(spec: _Spec) -> tuple[Container, ...]:
    return _shapes[spec.containers, spec.init_containers]


def _containers_of(shape: _Shape) -> tuple[Container, ...]:
    regular, init = shape
    sidecars = [wire for wire in init if wire.restart_policy == "Always"]
    return tuple(map(_container, (*regular, *sidecars)))


def _shape_bytes(shape: _Shape, _: object) -> int:
    regular, init = shape
    return containers_bytes((*regular, *init))


_shapes = Cache[_Shape, tuple[Container, ...]](_shape_bytes, _containers_of)


def _container(wire: _ContainerWire) -> Container:
    ports = [(port.name, port.container_port) for port in wire.ports if port.name]
    return Container(
        wire.name,
        tuple(ports),
        wire.startup_probe is not None,
    )


def _gates(spec: _Spec) -> frozenset[str]:
    if not spec.readiness_gates:
        return _NONE
    return frozenset([intern(gate.condition_type) for gate in spec.readiness_gates])


def _started(status: _Status) -> frozenset[str]:
    """Names of started containers, with one shared set per combination."""
    names = tuple([container.name for container in status.container_statuses if container.started])
    if status.init_container_statuses:
        sidecars = status.init_container_statuses
        names += tuple([container.name for container in sidecars if container.started])
    return _name_sets[names]


def _interned(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset([intern(name) for name in names])


_name_sets = Cache[tuple[str, ...], frozenset[str]](
    lambda names, interned: sizes_of(names) + sizes_of(interned), _interned
)


def _exit_codes(spec: _Spec, status: _Status) -> Mapping[str, int]:
    """Exit codes of the regular containers that ended and are not restarted. A sidecar always is."""
    codes: dict[str, int] = {}
    for container in status.container_statuses:
        ended = container.state.terminated if container.state is not None else None
        if ended is not None and not _restarts(spec, container.name, ended.exit_code):
            codes[intern(container.name)] = ended.exit_code
    if not codes or status.phase in FINISHED_PHASES:
        return NO_EXIT_CODES
    return codes


def _restarts(spec: _Spec, name: str, exit_code: int) -> bool:
    """Whether the kubelet restarts a container that ended. Rules of a container may restart it in any case."""
    policy = spec.restart_policy or "Always"
    for container in spec.containers:
        if container.name == name:
            policy = container.restart_policy or policy
            if container.restart_policy_rules:
                return True
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)
