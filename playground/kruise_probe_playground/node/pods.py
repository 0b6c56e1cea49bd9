"""Pods as the embedded kubelet reads them.

Source: k8s.io/api core/v1 Pod.
Differs: only the fields that the embedded kubelet uses; no volumes, resources or security contexts.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from kruise_probe.api.meta import ApiObject, ObjectMeta, Resource, as_is
from kruise_probe.api.pods import PodCondition
from kruise_probe.api.probe import Probe

Json = dict[str, Any]

DEFAULT_GRACE_SECONDS = 30


class _Wire(msgspec.Struct, frozen=True, rename="camel"):
    """Common options of the structs below."""


class FieldSelector(_Wire, frozen=True):
    field_path: str


class EnvSource(_Wire, frozen=True):
    """Only fieldRef is supported; other sources have no `field_ref`."""

    field_ref: FieldSelector | None = None


class EnvVar(_Wire, frozen=True):
    name: str
    value: str | None = None
    value_from: EnvSource | None = None


class _Anything(msgspec.Struct, frozen=True):
    """Any object; its fields are not read."""


class PodContainer(_Wire, frozen=True):
    name: str
    image: str | None = None
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[_Anything, ...] = ()
    restart_policy: str | None = None
    startup_probe: Probe | None = None

    @property
    def sidecar(self) -> bool:
        """For init containers: it runs beside the containers instead of before them."""
        return self.restart_policy == "Always"


class ReadinessGate(_Wire, frozen=True):
    condition_type: str


class PodSpec(_Wire, frozen=True):
    containers: tuple[PodContainer, ...] = ()
    init_containers: tuple[PodContainer, ...] = ()
    node_name: str | None = None
    scheduler_name: str | None = None
    restart_policy: str | None = None
    readiness_gates: tuple[ReadinessGate, ...] = ()
    termination_grace_period_seconds: int | None = None

    def all_containers(self) -> Iterator[PodContainer]:
        """Init containers first."""
        yield from self.init_containers
        yield from self.containers


class Waiting(_Wire, frozen=True):
    reason: str | None = None
    message: str | None = None


class WireContainerState(_Wire, frozen=True):
    waiting: Waiting | None = None
    running: _Anything | None = None


class ContainerStatus(_Wire, frozen=True):
    name: str
    ready: bool = False
    restart_count: int = 0
    state: WireContainerState = WireContainerState()


class PodStatus(_Wire, frozen=True):
    phase: str | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class PodMeta(ObjectMeta, frozen=True):
    deletion_grace_period_seconds: int | None = None


class NodePod(ApiObject, frozen=True):
    """A pod of this node, or a pod without a node."""

    metadata: PodMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def grace_seconds(self) -> float:
        """The termination grace period."""
        seconds = self.metadata.deletion_grace_period_seconds
        if seconds is None:
            seconds = self.spec.termination_grace_period_seconds
        return float(DEFAULT_GRACE_SECONDS if seconds is None else max(seconds, 0))

    def condition(self, condition_type: str) -> PodCondition | None:
        for condition in self.status.conditions:
            if condition.type == condition_type:
                return condition
        return None


NODE_PODS: Final = Resource(
    "",
    "v1",
    "pods",
    "Pod",
    wire=NodePod,
    project=as_is,
)
