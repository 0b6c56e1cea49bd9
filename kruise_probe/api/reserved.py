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

from kruise_probe.api.names import (
    LAST_APPLIED_ANNOTATION,
    NATIVE_POD_CONDITIONS,
    PAUSED_ANNOTATION,
    SERVERLESS_PROBES_ANNOTATION,
)


class ReservedKeys(NamedTuple):
    """The reserved keys of one owner, and the reason.

    Attributes:
        keys: exact keys.
        prefixes: prefixes of keys.
        domains: domains including their subdomains; a domain is the part of a key before '/'.
        exceptions: domains that are exempt.
    """

    reason: str
    keys: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()

    def covers(self, key: str) -> bool:
        if key in self.keys or key.startswith(self.prefixes):
            return True
        domain, slash, _ = key.partition("/")
        return (
            bool(slash)
            and domain not in self.exceptions
            and any(domain == each or domain.endswith(f".{each}") for each in self.domains)
        )

    def error(self, remedy: str) -> str:
        """Return an error message, which follows the key."""
        return f"is reserved: {self.reason}; {remedy}"


MAX_ALLOWED_LABELS: Final = 32
"""Maximum number of `--allowed-label-keys`. The CRD's rules list them, and CEL has a cost budget."""

USE_ANOTHER_KEY: Final = "use a key of your own, such as example.com/healthy"
USE_ANOTHER_LABEL: Final = (
    f"{USE_ANOTHER_KEY}, or ask an administrator to allow it with --allowed-label-keys"
)
USE_ANOTHER_CONDITION: Final = "use a condition type of your own, such as example.com/healthy"

_MESHES: Final = ReservedKeys(
    "service meshes decide on encryption, identity or routing by it",
    domains=("istio.io", "linkerd.io", "kuma.io", "consul.hashicorp.com"),
)

LABELS: Final = (
    ReservedKeys(
        "Kubernetes and its controllers own this domain",
        domains=("kubernetes.io", "k8s.io"),
        exceptions=("app.kubernetes.io",),
    ),
    ReservedKeys(
        "controllers identify their pods and revisions by it",
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
    ReservedKeys("it belongs to the serverless protocol", prefixes=(SERVERLESS_PROBES_ANNOTATION,)),
    ReservedKeys("kruise-probe acts on it", keys=(PAUSED_ANNOTATION,)),
    ReservedKeys("kubectl records the applied object in it", keys=(LAST_APPLIED_ANNOTATION,)),
    ReservedKeys(
        "the kubelet, the scheduler or security profiles read it",
        prefixes=(
            "kubernetes.io/config.",
            "container.apparmor.security.beta.kubernetes.io/",
            "container.seccomp.security.alpha.kubernetes.io/",
            "seccomp.security.alpha.kubernetes.io/",
            "scheduler.alpha.kubernetes.io/",
        ),
    ),
    ReservedKeys(
        "Kruise's in-place update writes images from it into the pod",
        prefixes=("apps.kruise.io/inplace-update-",),
    ),
    _MESHES,
    ReservedKeys(
        "network plugins decide on the pod's addresses or network policy by it",
        keys=("vpc.amazonaws.com/pod-ips",),
        domains=("projectcalico.org", "ovn.org", "cilium.io", "cni.cncf.io"),
    ),
)
"""Reserved annotation keys."""

CONDITIONS: Final = (
    ReservedKeys("Kubernetes writes this condition", keys=tuple(sorted(NATIVE_POD_CONDITIONS))),
    ReservedKeys(
        "Kruise's controllers write this condition",
        keys=("InPlaceUpdateReady", "KruisePodReady", "SidecarSetUpgradable", "SidecarTerminated"),
    ),
)
"""Reserved condition types."""


def reserved_label_error(key: str, allowed: Collection[str] = ()) -> str | None:
    """Return why a policy may not write the label `key`, and what to do; None if it may."""
    return None if key in allowed else _error(LABELS, key, USE_ANOTHER_LABEL)


def reserved_condition_error(condition_type: str) -> str | None:
    """Like `reserved_label_error`, for a condition type."""
    return _error(CONDITIONS, condition_type, USE_ANOTHER_CONDITION)


def _error(table: tuple[ReservedKeys, ...], key: str, remedy: str) -> str | None:
    for row in table:
        if row.covers(key):
            return row.error(remedy)
    return None
