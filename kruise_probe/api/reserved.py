"""Keys and condition types that a marker may not write, with the reason; used by CEL, webhook and manager.

A user who can create markers can label pods of that namespace through the manager, which may patch every pod. So a
marker may not write keys that a controller, the kubelet, a service mesh or the network uses as its own state.
The table lists keys with an effect on a running pod, not keys that are read at creation only.

Source: kubernetes.io/docs/reference/labels-annotations-taints; Kruise apis/apps/pub, pkg/control/sidecarcontrol and
pkg/controller/sidecarterminator; istio.io/docs/reference/config (labels, annotations); Linkerd's, Kuma's and Consul's
pod labels; Calico libcalico-go conversion, OVN-Kubernetes and Cilium pod annotations.
Differs: Kruise allows all of these keys.
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
    """One row: the reserved keys of one owner, and `reason`, which follows the key in an error message.

    Attributes:
        keys: exact keys.
        prefixes: prefixes of keys.
        domains: domains including their subdomains; a domain is the part of a key before '/'.
        but: domains that are exempt.
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
"""Maximum number of `--allowed-label-keys`. The CRD's rules list them, and CEL has a cost budget."""

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
"""Reserved label keys. The manager's `--allowed-label-keys` exempts single keys."""

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
"""Reserved annotation keys."""

CONDITIONS: Final = (
    Reserved(
        "is a condition that Kubernetes itself writes", keys=tuple(sorted(NATIVE_POD_CONDITIONS))
    ),
    Reserved(
        "is a condition that Kruise's controllers write",
        keys=("InPlaceUpdateReady", "KruisePodReady", "SidecarSetUpgradable", "SidecarTerminated"),
    ),
)
"""Reserved condition types."""


def label_reserved(key: str, allowed: Collection[str] = ()) -> str | None:
    """Return why no policy may write the label `key`, with a remedy; None if it may."""
    return None if key in allowed else _refusal(LABELS, key, remedies.RESERVED_LABEL)


def annotation_reserved(key: str) -> str | None:
    """Like `label_reserved`, for an annotation key."""
    return _refusal(ANNOTATIONS, key, remedies.RESERVED_ANNOTATION)


def condition_reserved(condition_type: str) -> str | None:
    """Like `label_reserved`, for a condition type."""
    return _refusal(CONDITIONS, condition_type, remedies.RESERVED_CONDITION)


def _refusal(table: tuple[Reserved, ...], key: str, remedy: str) -> str | None:
    for row in table:
        if row.holds(key):
            return f"{row.reason}; {remedy}"
    return None
