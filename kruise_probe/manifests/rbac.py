"""Service accounts and RBAC rules of the manager and the daemon.

Source: Kruise config/rbac.
Differs: the daemon has four rules, none on pods or secrets; the manager has none on secrets. `metrics_rbac` adds two
rules to both.
"""

from collections.abc import Sequence
from typing import Any, Final

from kruise_probe.api.names import GROUP

MANAGER: Final = "kruise-probe-manager"
DAEMON: Final = "kruise-probe-daemon"
METRICS_AUTH: Final = "kruise-probe-metrics-auth"
METRICS_READER: Final = "kruise-probe-metrics-reader"
"""ClusterRole for scraping metrics; bind it to Prometheus' service account."""
PRODUCT: Final = "kruise-probe"
NAME_LABEL: Final = "app.kubernetes.io/name"
PART_OF: Final = {NAME_LABEL: PRODUCT, "app.kubernetes.io/part-of": PRODUCT}
"""Labels of every object that an uninstall deletes: all but the namespace and the CRDs."""

_READ: Final = ["get", "list", "watch"]
_RBAC: Final = "rbac.authorization.k8s.io"


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


MANAGER_CLUSTER_RULES: Final = [
    _rule("", ["pods", "nodes"], _READ),
    _rule("", ["pods/status"], ["patch"]),
    _rule("", ["events"], ["create", "patch"]),
    _rule(GROUP, ["podprobemarkers"], [*_READ, "patch"]),
    _rule(GROUP, ["podprobemarkers/status"], ["patch"]),
    _rule(GROUP, ["nodepodprobes"], [*_READ, "create", "patch", "delete"]),
]
"""`podprobemarkers` patch is for the finalizer. Only daemons write `nodepodprobes/status`."""

MANAGER_SYSTEM_RULES: Final = [
    _rule("coordination.k8s.io", ["leases"], [*_READ, "create", "patch"]),
]
"""Rules in the system namespace, for leader election and the daemons' Leases."""

DAEMON_CLUSTER_RULES: Final = [
    _rule(GROUP, ["nodepodprobes"], _READ),
    _rule(GROUP, ["nodepodprobes/status"], ["patch", "update"]),
    _rule("", ["events"], ["create", "patch"]),
]
DAEMON_SYSTEM_RULES: Final = [
    _rule("coordination.k8s.io", ["leases"], ["create", "patch"]),
]


def manager_rbac(namespace: str) -> list[dict[str, Any]]:
    """Service account, roles and bindings of the manager in the system namespace."""
    return _identity(MANAGER, namespace, MANAGER_CLUSTER_RULES, MANAGER_SYSTEM_RULES)


def daemon_rbac(namespace: str) -> list[dict[str, Any]]:
    """Service account, roles and bindings of the daemon in the system namespace."""
    return _identity(DAEMON, namespace, DAEMON_CLUSTER_RULES, DAEMON_SYSTEM_RULES)


def metrics_rbac(namespace: str) -> list[dict[str, Any]]:
    """RBAC for `--metrics-secure`: token and access reviews for manager and daemon, and a role for readers.

    The bindings are separate, so an install without the flag has none of these rights.
    """
    auth = {"name": METRICS_AUTH}
    reviews = [
        _rule("authentication.k8s.io", ["tokenreviews"], ["create"]),
        _rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
    ]
    reading = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    return [
        role("ClusterRole", auth, reviews),
        binding("ClusterRole", auth, namespace, MANAGER, DAEMON),
        role("ClusterRole", {"name": METRICS_READER}, [reading]),
    ]


def _identity(
    name: str,
    namespace: str,
    cluster_rules: list[dict[str, Any]],
    system_rules: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    cluster_wide, namespaced = {"name": name}, {"name": name, "namespace": namespace}
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {**namespaced, "labels": PART_OF},
        },
        role("ClusterRole", cluster_wide, cluster_rules),
        binding("ClusterRole", cluster_wide, namespace, name),
        role("Role", namespaced, system_rules),
        binding("Role", namespaced, namespace, name),
    ]


def role(kind: str, metadata: dict[str, str], rules: list[dict[str, Any]]) -> dict[str, Any]:
    """Build a Role or a ClusterRole."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": kind,
        "metadata": {**metadata, "labels": PART_OF},
        "rules": rules,
    }


def binding(
    role_kind: str, metadata: dict[str, str], namespace: str, *accounts: str
) -> dict[str, Any]:
    """Bind a role to service accounts of `namespace`. `metadata` is also that of the role."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{role_kind}Binding",
        "metadata": {**metadata, "labels": PART_OF},
        "roleRef": {"apiGroup": _RBAC, "kind": role_kind, "name": metadata["name"]},
        "subjects": [
            {"kind": "ServiceAccount", "name": name, "namespace": namespace} for name in accounts
        ],
    }
