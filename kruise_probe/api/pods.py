"""The manager's view of a Pod, reduced while decoding to the fields that it uses.

The pod list uses most of the manager's memory. `PodWire` is decoded, and `Pod` is cached: flat, with shared parts
(containers of one template, node names) stored once.

Source: k8s.io/api core/v1 Pod; structured-merge-diff's fieldsV1 format for `owned`.
Differs: unused fields are dropped.
"""

from collections.abc import Iterable, Mapping
from sys import getsizeof, intern
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

import msgspec

from kruise_probe.api.caches import (
    ITEM_BYTES,
    OBJECT_BYTES,
    STRING_BYTES,
    Cache,
    sizes_of,
    text_bytes,
)
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import (
    ANCIENT_FIELD_MANAGER,
    LAST_APPLIED_ANNOTATION,
    MANAGER_FIELD_MANAGER,
    MIRROR_POD_ANNOTATION,
    NATIVE_POD_CONDITIONS,
    PAUSED_ANNOTATION,
)

SHARED_BYTES = 512
"""Longer labels or annotations are not cached: they are mostly unique to one pod."""
SHARED_FIELDS_BYTES = 4096
"""Larger `managedFields` are of pods with many probes and change with each result: what is owned is cached, not the bytes."""

CONTAINER_BYTES: Final = 512
PORT_BYTES: Final = 256
"""Upper estimates of the memory of a container and of a port, as decoded and as kept. Their names have at most 63 characters."""

PAIR_BYTES: Final = 2 * STRING_BYTES + ITEM_BYTES
"""A label or an annotation without its characters."""

SHARED_MARKS = 64
"""The same for the marks that other field managers own."""

MAX_KEYS = 2000
"""Labels or annotations of one pod. A pod with more does not decode: each of them takes 250 bytes here."""

KUBELET_FIELD_MANAGER = "kubelet"

FINISHED_PHASES: Final = ("Succeeded", "Failed")

_NONE: frozenset[str] = frozenset()
_NO_EXIT_CODES: Final[Mapping[str, int]] = MappingProxyType({})
_ABSENT = msgspec.Raw()  # Raw cannot be `| None`: a JSON null arrives as the bytes `null`


class _AnyObject(msgspec.Struct, frozen=True, gc=False):
    """Decodes any object; only its presence is used."""


class ContainerPort(msgspec.Struct, frozen=True, rename="camel", gc=False):
    container_port: int
    name: str | None = None


class _ContainerWire(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str
    ports: tuple[ContainerPort, ...] = ()
    startup_probe: _AnyObject | None = None
    restart_policy: str | None = None
    restart_policy_rules: tuple[_AnyObject, ...] = ()


class _ManagedFields(msgspec.Struct, frozen=True, gc=False, rename={"fields_v1": "fieldsV1"}):
    manager: str | None = None
    subresource: str | None = None
    fields_v1: msgspec.Raw = _ABSENT


class _Meta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    labels: msgspec.Raw = _ABSENT
    annotations: msgspec.Raw = _ABSENT
    managed_fields: list[_ManagedFields] = []


class _ReadinessGate(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    condition_type: str


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_name: str | None = None
    containers: tuple[_ContainerWire, ...] = ()
    init_containers: tuple[_ContainerWire, ...] = ()
    readiness_gates: tuple[_ReadinessGate, ...] = ()
    restart_policy: str | None = None


class PodCondition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A condition of a pod; times are strings as on the wire."""

    type: str
    status: str
    reason: str | None = None
    message: str | None = None
    last_probe_time: str | None = None
    last_transition_time: str | None = None


class _Terminated(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    exit_code: int = 0


class _ContainerState(msgspec.Struct, frozen=True, gc=False):
    terminated: _Terminated | None = None


class _ContainerStatus(msgspec.Struct, frozen=True, gc=False):
    name: str
    started: bool | None = None
    state: _ContainerState | None = None


class _Status(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    phase: str | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[_ContainerStatus, ...] = ()
    init_container_statuses: tuple[_ContainerStatus, ...] = ()


_Shape = tuple[tuple[_ContainerWire, ...], tuple[_ContainerWire, ...]]
"""The containers and init containers of a pod template."""


class PodWire(msgspec.Struct, frozen=True, gc=False):
    """A decoded pod before `project`."""

    metadata: _Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()


class Container(NamedTuple):
    """A container that can be probed: a regular one or a sidecar (restartable init container)."""

    name: str
    ports: tuple[tuple[str, int], ...]
    has_startup_probe: bool

    def port_number(self, name: str) -> int | None:
        """The number of the port called `name`, or None."""
        return dict(self.ports).get(name)


def containers_bytes(containers: Iterable[Container | _ContainerWire]) -> int:
    """Upper estimate of the memory of containers, as decoded and as kept."""
    size = OBJECT_BYTES
    for container in containers:
        size += CONTAINER_BYTES + PORT_BYTES * len(container.ports)
    return size


class Mark(NamedTuple):
    """A condition type, a label key or an annotation key. `field` is the attribute of `Pod` with its value."""

    field: Literal["conditions", "labels", "annotations"]
    name: str

    @property
    def kind(self) -> str:
        return "condition type" if self.field == "conditions" else self.field.removesuffix("s")


def names_of(marks: Iterable[Mark], field: str) -> set[str]:
    """The names of the marks of one field."""
    return {mark.name for mark in marks if mark.field == field}


def _marks(
    conditions: Iterable[str], labels: Iterable[str], annotations: Iterable[str]
) -> frozenset[Mark]:
    marks = [Mark("conditions", name) for name in conditions]
    marks += [Mark("labels", name) for name in labels]
    marks += [Mark("annotations", name) for name in annotations]
    return frozenset(marks)


Owned = frozenset[Mark]
"""What a field manager owns of a pod, according to `managedFields`."""
NOTHING_OWNED: Final[Owned] = frozenset()
Writers = tuple[tuple[str, Owned], ...]
"""Field managers, and what each owns of a pod."""


class Pod(msgspec.Struct, frozen=True, gc=False):
    """The cached fields of a pod.

    Attributes:
        conditions: all except those that Kubernetes itself writes.
        started: names of containers that report `started: true`.
        readiness_gates: condition types that the pod's readiness depends on.
        owned: what our manager owns on the status subresource.
        owned_by_others: what any other manager but the kubelet owns. What belongs to the oldest of many managers has no owner.
        merged: what belongs to the oldest of many managers; some of it may be ours.
        writers: what each other manager but the kubelet owns, by its name.
        exit_codes: of the containers that ended and are not restarted, unless the whole pod has finished.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    node: str
    ip: str
    phase: str
    deleting: bool
    mirror: bool
    initialized: bool
    containers: tuple[Container, ...]
    started: frozenset[str]
    readiness_gates: frozenset[str]
    conditions: tuple[PodCondition, ...]
    owned: Owned
    owned_by_others: Owned = NOTHING_OWNED
    merged: Owned = NOTHING_OWNED
    writers: Writers = ()
    exit_codes: Mapping[str, int] = _NO_EXIT_CODES

    @property
    def key(self) -> NamespacedName:
        return NamespacedName(self.namespace, self.name)

    @property
    def active(self) -> bool:
        """Neither terminating nor finished."""
        return not self.deleting and not self.finished

    @property
    def finished(self) -> bool:
        """Whether all containers ended and none is restarted."""
        return self.phase in FINISHED_PHASES

    @property
    def paused(self) -> bool:
        """Whether the pod's annotation pauses all of its probes."""
        return self.annotations.get(PAUSED_ANNOTATION) == "true"

    @property
    def marks(self) -> frozenset[Mark]:
        """All of its conditions, labels and annotations."""
        types = [condition.type for condition in self.conditions]
        return _marks(types, self.labels, self.annotations)

    def has(self, mark: Mark) -> bool:
        """Whether the condition, label or annotation is present."""
        if mark.field == "conditions":
            return self.condition(mark.name) is not None
        return mark.name in getattr(self, mark.field)

    def value_of(self, mark: Mark) -> str | None:
        """The value of a label or annotation; None if it is absent."""
        values = self.labels if mark.field == "labels" else self.annotations
        return values.get(mark.name)

    def writer_of(self, mark: Mark) -> str:
        """Another field manager that owns the mark; empty if there is none."""
        for name, owned in self.writers:
            if mark in owned:
                return name
        return ""

    def container(self, name: str) -> Container | None:
        for container in self.containers:
            if container.name == name:
                return container
        return None

    def condition(self, condition_type: str) -> PodCondition | None:
        for condition in self.conditions:
            if condition.type == condition_type:
                return condition
        return None


_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)
_map_decoder = msgspec.json.Decoder(dict[str, str] | None)


def project(wire: PodWire) -> Pod:
    """Convert a decoded pod to a `Pod`; the wire struct may be dropped afterwards."""
    meta = wire.metadata
    spec = wire.spec
    status = wire.status
    annotations = _annotations(meta.annotations)
    initialized = False
    ours: list[PodCondition] = []
    for condition in status.conditions:
        kind = condition.type
        if kind not in NATIVE_POD_CONDITIONS:
            ours.append(_shared_condition(condition))
        elif kind == "Initialized":
            initialized = condition.status == "True"
    return Pod(
        intern(meta.namespace or ""),
        meta.name,
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
        *_owned(meta.managed_fields),
        _exit_codes(spec, status),
    )


def _shared_condition(condition: PodCondition) -> PodCondition:
    """The same condition with texts that all pods share. A pod may have hundreds of conditions."""
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


def _shared_map(encoded: msgspec.Raw) -> Mapping[str, str]:
    """Decode labels or annotations, once for all pods with equal bytes; pods of one template mostly share them."""
    if len(encoded) > SHARED_BYTES:
        return _decoded_map(encoded)
    return _maps[bytes(encoded)]


def _check_keys(encoded: bytes | msgspec.Raw, mark: bytes) -> None:
    """Raises: ValidationError, if an encoded map has more than MAX_KEYS keys. Kubernetes does not limit the labels.

    `mark` is what follows each name. It cannot be in a text, where quotes are escaped.
    """
    if bytes(encoded).count(mark) > MAX_KEYS:
        raise msgspec.ValidationError(f"has more than {MAX_KEYS} labels or annotations")


def _decoded_map(encoded: bytes | msgspec.Raw) -> Mapping[str, str]:
    _check_keys(encoded, b'":"')
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
        return _NO_EXIT_CODES
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


def _owned(entries: list[_ManagedFields]) -> tuple[Owned, Owned, Owned, Writers]:
    """What our manager owns, what others own, what has no owner, and who the others are.

    The kubelet writes neither labels nor annotations. What the API server merged from the oldest managers may have been
    ours, so it has no owner here.
    """
    ours = NOTHING_OWNED
    others = NOTHING_OWNED
    merged = NOTHING_OWNED
    writers: Writers = ()
    for entry in entries:
        if entry.manager == MANAGER_FIELD_MANAGER and entry.subresource == "status":
            ours = _shared_owned(entry)
        elif entry.manager == ANCIENT_FIELD_MANAGER:
            merged = _shared_owned(entry)
        elif entry.manager != KUBELET_FIELD_MANAGER:
            found = _shared_owned(entry)
            others = found if others is NOTHING_OWNED else _union(others, found)
            if found:
                writers = (*writers, (intern(entry.manager or ""), found))
    return ours, others, merged, _shared_writers(writers)


def _shared_writers(writers: Writers) -> Writers:
    if sum(len(owned) for _, owned in writers) > SHARED_MARKS:
        return writers
    return _writers[writers]


def _shared_owned(entry: _ManagedFields) -> Owned:
    fields = bytes(entry.fields_v1)
    if len(fields) > SHARED_FIELDS_BYTES:
        return _unions[_owned_of(fields)]
    return _owned_fields[fields]


def _union(left: Owned, right: Owned) -> Owned:
    union = left | right
    if sum(len(mark.name) for mark in union) > SHARED_FIELDS_BYTES:
        return union
    return _unions[union]


def _owned_of(fields: bytes) -> Owned:
    """Parse `{"f:metadata": {"f:labels": {"f:a": {}}}, "f:status": {"f:conditions": {'k:{"type":"x"}': {}}}}`."""
    top = _decoded_fields(fields)
    _check_keys(top.get("f:metadata", b""), b'":{')
    metadata = _subfields(top, "f:metadata")
    types = list[str]()
    for key in _subfields(_subfields(top, "f:status"), "f:conditions"):
        if key.startswith('k:{"type":"'):
            kind = msgspec.json.decode(
                key[2:],
                type=dict[str, str],
            )["type"]
            if kind not in NATIVE_POD_CONDITIONS:
                types.append(intern(kind))
    return _marks(
        types,
        _leaf_names(_subfields(metadata, "f:labels")),
        _leaf_names(_subfields(metadata, "f:annotations")),
    )


def _decoded_fields(fields: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    return (fields and _fields_decoder.decode(fields)) or {}


def _subfields(fields: dict[str, msgspec.Raw], name: str) -> dict[str, msgspec.Raw]:
    return _decoded_fields(fields.get(name, b""))


def _leaf_names(fields: dict[str, msgspec.Raw]) -> list[str]:
    return [intern(key[2:]) for key in fields if key.startswith("f:")]


def _owned_bytes(owned: Owned) -> int:
    names = [mark.name for mark in owned]
    return sizes_of(names) + getsizeof(owned) + OBJECT_BYTES * len(names)


def _writers_bytes(writers: Writers) -> int:
    return sum(OBJECT_BYTES + _owned_bytes(owned) for _, owned in writers)


_writers = Cache[Writers, Writers](
    lambda writers, _: _writers_bytes(writers), lambda writers: writers
)
_unions = Cache[Owned, Owned](lambda owned, _: _owned_bytes(owned), lambda owned: owned)
# Fields may contain the uid of one pod's Job; what is owned is still the same for many pods.
_owned_fields = Cache[bytes, Owned](
    lambda fields, owned: getsizeof(fields) + _owned_bytes(owned),
    lambda fields: _union(NOTHING_OWNED, _owned_of(fields)),
)
