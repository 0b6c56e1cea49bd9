"""Keys and condition types that a marker may not write, with the reason; used by CEL, webhook and manager. And the rules of
all keys and condition types that it may write.

A user who can create markers can label pods of that namespace through the manager, which may patch every pod. So a
marker may not write keys that a controller, the kubelet, a service mesh or the network uses as its own state.
Rules about labels depend on the manager's --allowed-label-keys too, and those about patterns on all patterns of the marker:
`validation` checks both.
The table lists keys with an effect on a running pod, not keys that are read at creation only.

Source: kubernetes.io/docs/reference/labels-annotations-taints; Kruise apis/apps/pub, pkg/control/sidecarcontrol and
pkg/controller/sidecarterminator; istio.io/docs/reference/config (labels, annotations); Linkerd's, Kuma's and Consul's
pod labels; Calico libcalico-go conversion, OVN-Kubernetes and Cilium pod annotations.
apiserver pkg/cel/library for what a call costs.
Differs: Kruise allows all of these keys.
"""

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from kruise_probe.api.fields import TEXT, Rule, each_key, literal, rule
from kruise_probe.api.labels import (
    DELETION_COSTS,
    KEY,
    LABEL_KEYS,
    LABEL_VALUES,
    annotation_key_error,
    is_key_cel,
    label_key_error,
)
from kruise_probe.api.names import (
    LAST_APPLIED_ANNOTATION,
    NATIVE_POD_CONDITIONS,
    PAUSED_ANNOTATION,
    SERVERLESS_PROBES_ANNOTATION,
)
from kruise_probe.api.problems import ErrorKind


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
        if not slash or domain in self.exceptions:
            return False
        with_dot = f".{domain}"
        return any(with_dot.endswith(f".{reserved}") for reserved in self.domains)

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


def _error(
    table: tuple[ReservedKeys, ...],
    key: str,
    remedy: str,
) -> str | None:
    for row in table:
        if row.covers(key):
            return row.error(remedy)
    return None


MAX_PATTERN: Final = 256
"""Maximum characters of a pattern."""
SYNTAX: Final = "must be an RE2 pattern (see github.com/google/re2/wiki/Syntax)"
ALLOWED_LABELS: Final = "<allowed labels>"
"""In CEL, the place of the list of allowed labels."""


def _list(texts: tuple[str, ...]) -> str:
    return f"[{', '.join(map(literal, texts))}]"


def _is_reserved(row: ReservedKeys) -> str:
    """CEL: whether the row covers the key `k`, as in `ReservedKeys.covers`."""
    conditions = [f"k.startsWith({literal(prefix)})" for prefix in row.prefixes]
    if row.keys:
        conditions.append(f"k in {_list(row.keys)}")
    if row.domains:
        domains = "|".join(row.domains).replace(".", "[.]")
        in_domain = f"k.matches('^([^/]*[.])?({domains})/')"
        for exception in row.exceptions:
            in_domain += f" && !k.startsWith({literal(f'{exception}/')})"
        conditions.append(in_domain)
    return " || ".join(conditions)


def _reserved_labels(keys: str) -> Iterator[Rule]:
    for row in LABELS:
        cel = f"k in {ALLOWED_LABELS} || !({_is_reserved(row)})"
        message = row.error(USE_ANOTHER_LABEL)
        yield each_key(
            message,
            cel,
            None,
            keys=keys,
            kind=ErrorKind.FORBIDDEN,
        )


def _annotation_keys(keys: str) -> Iterator[Rule]:
    yield each_key(
        KEY,
        is_key_cel("k", letters="A-Za-z"),
        annotation_key_error,
        keys=keys,
    )
    for row in ANNOTATIONS:
        yield _reserved_annotation(row, keys)


def _reserved_annotation(row: ReservedKeys, keys: str) -> Rule:
    message = row.error(USE_ANOTHER_KEY)
    cel = f"!({_is_reserved(row)})"

    def error(key: str) -> str | None:
        return message if row.covers(key) else None

    return each_key(message, cel, error, keys=keys, kind=ErrorKind.FORBIDDEN)


def _reserved_condition(row: ReservedKeys) -> Rule:
    message = row.error(USE_ANOTHER_CONDITION)
    return rule(
        message,
        f"!(self in {_list(row.keys)})",
        lambda name: not row.covers(name),
    )


LABEL_RULES: Final = (LABEL_KEYS, LABEL_VALUES, *_reserved_labels("self"))
LABEL_KEY_RULES: Final = (
    each_key(KEY, is_key_cel("k"), label_key_error, keys=TEXT),
    *_reserved_labels(TEXT),
)
ANNOTATION_RULES: Final = (*_annotation_keys("self"), DELETION_COSTS)
ANNOTATION_KEY_RULES: Final = tuple(_annotation_keys(TEXT))
CONDITION_TYPE_RULES: Final = (
    *map(_reserved_condition, CONDITIONS),
    rule(
        KEY,
        f"self == '' || ({is_key_cel('self')})",
        lambda name: not name or reserved_condition_error(name) or not label_key_error(name),
    ),
)
PATTERN: Final = Rule(SYNTAX, "''.matches(self) || !''.matches(self)")
"""Go's regular expressions are RE2's. An invalid one is an error of the rule, and the API server refuses the marker."""
