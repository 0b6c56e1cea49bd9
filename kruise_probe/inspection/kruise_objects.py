"""Kruise's objects in a cluster: manager, daemon, webhook and CRDs, as far as a migration concerns them.

Source: Kruise's Helm chart for their names; its gate is on by default.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from kruise_probe.api.kinds import Resource, as_is
from kruise_probe.api.meta import ApiObject
from kruise_probe.api.names import GROUP
from kruise_probe.api.v1alpha1 import NodePodProbe, PodProbeMarker

GATE: Final = "PodProbeMarkerGate"
WEBHOOK: Final = "vpodprobemarker.kb.io"
WEBHOOK_CONFIGURATION: Final = "kruise-validating-webhook-configuration"
WEBHOOK_TEMPLATE: Final = "template"
"""The annotation from which Kruise's manager restores the entries of its webhook configuration."""
MANAGER: Final = "kruise-controller-manager"
DAEMON: Final = "kruise-daemon"
MARKER_CRD: Final = f"podprobemarkers.{GROUP}"
_GATE_VALUE: Final = re.compile(rf"\b{GATE}=(\w+)")


class _Container(msgspec.Struct, frozen=True):
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None


class _PodSpec(msgspec.Struct, frozen=True):
    containers: tuple[_Container, ...] | None = None


class _Template(msgspec.Struct, frozen=True):
    spec: _PodSpec = _PodSpec()


class _WorkloadSpec(msgspec.Struct, frozen=True):
    template: _Template = _Template()


class KruiseWorkload(ApiObject, frozen=True):
    """A Deployment or DaemonSet."""

    spec: _WorkloadSpec = _WorkloadSpec()

    @property
    def gate_is_on(self) -> bool:
        """Whether Kruise's gate is on in its arguments; the last value counts."""
        containers = self.spec.template.spec.containers or ()
        words = [
            word for each in containers for word in (*(each.command or ()), *(each.args or ()))
        ]
        values = _GATE_VALUE.findall(" ".join(words))
        return not values or values[-1].lower() not in ("false", "f", "0")


class _Webhook(msgspec.Struct, frozen=True):
    name: str


class KruiseWebhooks(ApiObject, frozen=True):
    webhooks: tuple[_Webhook, ...] | None = None


class _Schema(msgspec.Struct, frozen=True):
    open_api: Mapping[str, Any] = msgspec.field(default_factory=dict, name="openAPIV3Schema")


class _CrdVersion(msgspec.Struct, frozen=True):
    schema: _Schema = _Schema()


class _CrdSpec(msgspec.Struct, frozen=True):
    versions: tuple[_CrdVersion, ...] | None = None


class MarkerDefinition(ApiObject, frozen=True):
    """The CustomResourceDefinition of PodProbeMarker."""

    spec: _CrdSpec = _CrdSpec()

    @property
    def is_ours(self) -> bool:
        """Ours has conditions in the status of a marker."""
        return any(
            "conditions" in _properties(_properties(each.schema.open_api).get("status"))
            for each in self.spec.versions or ()
        )


def _properties(schema: Any) -> Mapping[str, Any]:
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    return found if isinstance(found, Mapping) else {}


DEPLOYMENTS: Final = Resource(
    "apps", "v1", "deployments", "Deployment", wire=KruiseWorkload, project=as_is
)
DAEMON_SETS: Final = Resource(
    "apps", "v1", "daemonsets", "DaemonSet", wire=KruiseWorkload, project=as_is
)
WEBHOOK_CONFIGURATIONS: Final = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration",
    wire=KruiseWebhooks, project=as_is, namespaced=False,
)  # fmt: skip
DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
    wire=MarkerDefinition, project=as_is, namespaced=False,
)  # fmt: skip


class KruiseCluster(NamedTuple):
    """The objects that a migration concerns. None: the user may not list the kind."""

    markers: Sequence[PodProbeMarker]
    node_pod_probes: Sequence[NodePodProbe] | None
    definitions: Sequence[MarkerDefinition] | None
    managers: Sequence[KruiseWorkload] | None
    daemons: Sequence[KruiseWorkload] | None
    webhooks: Sequence[KruiseWebhooks] | None
    kruise_probe_leads: bool | None

    @property
    def has_webhook(self) -> bool:
        """Whether Kruise's webhook validates markers."""
        return any(
            hook.name == WEBHOOK for each in self.webhooks or () for hook in each.webhooks or ()
        )

    @property
    def crds_are_ours(self) -> bool:
        return any(each.is_ours for each in self.definitions or ())


def installed(cluster: KruiseCluster) -> Iterator[str]:
    """What is installed, one line each; nothing about a kind that the user may not list."""
    if cluster.definitions is not None:
        crd = next(iter(cluster.definitions), None)
        state = "not installed" if crd is None else "kruise-probe's" if crd.is_ours else "Kruise's"
        yield f"CRDs: {state}"
    for name, workloads in ((MANAGER, cluster.managers), (DAEMON, cluster.daemons)):
        if workloads is None:
            continue
        for each in workloads:
            yield f"{name} in {each.key.namespace}: {GATE} is {'on' if each.gate_is_on else 'off'}"
        if not workloads:
            yield f"{name}: not installed"
    if cluster.webhooks is not None:
        yield f"webhook {WEBHOOK}: {'installed' if cluster.has_webhook else 'not installed'}"
    if cluster.node_pod_probes is not None:
        with_probes = sum(bool(each.spec.pod_probes) for each in cluster.node_pod_probes)
        yield f"nodes with probes: {with_probes}"
    if cluster.kruise_probe_leads:
        yield "kruise-probe: a manager is installed"
    yield f"markers: {len(cluster.markers)}"
