"""The keys and condition types that a marker may not write, with the reason: one table for CEL, webhook and manager.

The right to create a marker is the right to label pods of its namespace, exercised by a manager that may patch every
pod. So a marker may not write what a controller, the kubelet, a service mesh or the network takes as its own record
of a pod. The table names what decides something on a running pod; what is read at creation only is not in it.

Source: kubernetes.io/docs/reference/labels-annotations-taints; Kruise apis/apps/pub, pkg/control/sidecarcontrol and
pkg/controller/sidecarterminator; istio.io/docs/reference/config (labels, annotations); Linkerd's, Kuma's and Consul's
pod labels; Calico libcalico-go conversion, OVN-Kubernetes and Cilium pod annotations.
Differs: Kruise refuses nothing of this.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from kruise_probe.api import remedies
from kruise_probe.api.names import (
    LAST_APPLIED_ANNOTATION,
    NATIVE_POD_CONDITIONS,
    SERVERLESS_PROBES_ANNOTATION,
)


class Reserved(NamedTuple):
    """One row: what belongs to somebody else, and `reason`, which follows the key in a sentence.

    Attributes:
        keys: whole keys.
        prefixes: beginnings of keys.
        domains: with their subdomains; a domain is the part of a key before '/'.
        but: domains that are free all the same.
    """

    reason: str
    keys: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    but: tuple[str, ...] = ()

    def holds(self, key: str) -> bool:
        if key in self.keys or key.startswith(self.prefixes):
            return True
        domain, slash, _ = key.partition("/")
        return (
            bool(slash)
            and domain not in self.but
            and any(domain == each or domain.endswith(f".{each}") for each in self.domains)
        )


MAX_ALLOWED_LABELS: Final = 32
"""Keys that `--allowed-label-keys` may open: the CRD's rules list them, and CEL has a cost budget."""

_MESHES: Final = Reserved(
    "decides on encryption, identity or routing in a service mesh",
    domains=("istio.io", "linkerd.io", "kuma.io", "consul.hashicorp.com"),
)

LABELS: Final = (
    Reserved(
        "belongs to Kubernetes and its controllers",
        domains=("kubernetes.io", "k8s.io"),
        but=("app.kubernetes.io",),
    ),
    Reserved(
        "tells a controller which pods are its own and of which revision",
        keys=(
            "pod-template-hash",
            "controller-revision-hash",
            "pod-template-generation",
            "controller-uid",
            "job-name",
            "apps.kruise.io/cloneset-instance-id",
            "apps.kruise.io/controller-revision-hash",
            "apps.kruise.io/subset-name",
        ),
        prefixes=("lifecycle.apps.kruise.io/",),
    ),
    _MESHES,
)
"""Keys of labels. `--allowed-label-keys` of the manager opens single keys."""

ANNOTATIONS: Final = (
    Reserved("belongs to the serverless protocol", prefixes=(SERVERLESS_PROBES_ANNOTATION,)),
    Reserved("is kubectl's record of the applied object", keys=(LAST_APPLIED_ANNOTATION,)),
    Reserved(
        "belongs to the kubelet, the scheduler or a security profile",
        prefixes=(
            "kubernetes.io/config.",
            "container.apparmor.security.beta.kubernetes.io/",
            "container.seccomp.security.alpha.kubernetes.io/",
            "seccomp.security.alpha.kubernetes.io/",
            "scheduler.alpha.kubernetes.io/",
        ),
    ),
    Reserved(
        "is the state of Kruise's in-place update, which writes images from it into the pod",
        prefixes=("apps.kruise.io/inplace-update-",),
    ),
    _MESHES,
    Reserved(
        "decides on the pod's addresses or network policy",
        keys=("vpc.amazonaws.com/pod-ips",),
        domains=("projectcalico.org", "ovn.org", "cilium.io", "cni.cncf.io"),
    ),
)
"""Keys of annotations; all others are free."""

CONDITIONS: Final = (
    Reserved(
        "is a condition that Kubernetes itself writes", keys=tuple(sorted(NATIVE_POD_CONDITIONS))
    ),
    Reserved(
        "is a condition that Kruise's controllers write",
        keys=("InPlaceUpdateReady", "KruisePodReady", "SidecarSetUpgradable", "SidecarTerminated"),
    ),
)
"""Condition types of pods."""


def label_reserved(key: str, allowed: Collection[str] = ()) -> str | None:
    """Why no policy may write the label `key`, and what to do instead; None when it may."""
    return None if key in allowed else _refusal(LABELS, key, remedies.RESERVED_LABEL)


def annotation_reserved(key: str) -> str | None:
    """As `label_reserved`, of an annotation."""
    return _refusal(ANNOTATIONS, key, remedies.RESERVED_ANNOTATION)


def condition_reserved(condition_type: str) -> str | None:
    """As `label_reserved`, of a condition type."""
    return _refusal(CONDITIONS, condition_type, remedies.RESERVED_CONDITION)


def _refusal(table: tuple[Reserved, ...], key: str, remedy: str) -> str | None:
    for row in table:
        if row.holds(key):
            return f"{row.reason}; {remedy}"
    return None
