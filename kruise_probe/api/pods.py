"""The manager's view of a Pod: flat, with the fields that it uses.

Source: k8s.io/api core/v1 Pod.
Differs: unused fields are dropped.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

import msgspec

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import (
    PAUSED_ANNOTATION,
)
from kruise_probe.api.structs import Wire

FINISHED_PHASES: Final = ("Succeeded", "Failed")

FEW_CONDITIONS: Final = 16
"""For so few, neither a mapping nor sharing them between pods saves anything."""

NO_EXIT_CODES: Final[Mapping[str, int]] = MappingProxyType({})


class PodCondition(Wire, frozen=True):
    """A condition of a pod; times are strings as on the wire."""

    type: str
    status: str
    reason: str | None = None
    message: str | None = None
    last_probe_time: str | None = None
    last_transition_time: str | None = None


class Container(NamedTuple):
    """A container that can be probed: a regular one or a sidecar (restartable init container)."""

    name: str
    ports: tuple[tuple[str, int], ...]
    has_startup_probe: bool

    def port_number(self, name: str) -> int | None:
        """The number of the port called `name`, or None."""
        return dict(self.ports).get(name)


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


def marks_of(
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

    key: NamespacedName
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
    exit_codes: Mapping[str, int] = NO_EXIT_CODES

    @property
    def namespace(self) -> str:
        return self.key.namespace

    @property
    def name(self) -> str:
        return self.key.name

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
        return marks_of(types, self.labels, self.annotations)

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

    def condition_lookup(self) -> "ConditionLookup":
        """`condition`, for many types: of a pod with many conditions it makes a mapping first."""
        if len(self.conditions) <= FEW_CONDITIONS:
            return self.condition
        first_of_type = {condition.type: condition for condition in reversed(self.conditions)}
        return first_of_type.get


ConditionLookup = Callable[[str], PodCondition | None]
"""The first condition of a type."""
