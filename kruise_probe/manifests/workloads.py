"""Workload manifests: the namespace, the manager's Deployment, the daemon's DaemonSet.

The manager meets the pod security standard `restricted`. The daemon cannot: it uses the host network, as kubelet does,
and opens the runtime's socket, which root owns. It drops all other privileges.

Both use a projected token: it is bound to the pod, so also to the node, and expires after an hour. The API server
accepts an automounted token for up to a year.

Source: Kruise config/manager and config/daemonconfig; pod-security-standards; core/v1 ServiceAccountTokenProjection.
Differs: no debug switches in the environment, no capability, no root for the manager.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

from kruise_probe import version
from kruise_probe.api.names import SYSTEM_NAMESPACE, VIRTUAL_NODE_LABEL, VIRTUAL_NODE_VALUE
from kruise_probe.manifests.rbac import DAEMON, MANAGER, NAME_LABEL, PART_OF, PRODUCT

Manifest = dict[str, Any]

COMPONENT_LABEL: Final = "app.kubernetes.io/component"
VERSION_LABEL: Final = "app.kubernetes.io/version"
DEFAULT_IMAGE: Final = f"ghcr.io/kruise-probe/kruise-probe:{version.TEXT}"

METRICS_PORT: Final = 8080
HEALTH_PORT: Final = 8000
DAEMON_PORT: Final = 10221
WEBHOOK_PORT: Final = 9443
WEBHOOK_SECRET: Final = "kruise-probe-webhook-certs"
NON_ROOT: Final = 65532
TOKEN_SECONDS: Final = 3600
"""Not 3607, the lifetime of automounted tokens, which the API server extends."""

_TOKEN_FOLDER: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
SOCKET_FOLDERS: Final = {
    "containerd": "/run/containerd",
    "cri-o": "/run/crio",
    "k3s": "/run/k3s/containerd",
    "k0s": "/run/k0s",
    "microk8s": "/var/snap/microk8s/common/run",
    "any": "/run",
}
"""Folders of the runtimes' sockets; `any` is for sockets in /run itself and for mixed nodes.

The folder is mounted instead of the socket, because a restarted runtime creates a new socket.
"""

_HOST: Final = "/host"
"""Mount path of the node's folders in the daemon; `daemon.cri.endpoints` searches below it."""


@dataclass(frozen=True, kw_only=True)
class Install:
    """Options of the default install.

    Attributes:
        allowed_label_keys: reserved label keys that policies may write anyway.
        cri_socket: path of the runtime's socket on the nodes; its folder is mounted. Empty: that of containerd.
        webhook: whether the manager also answers admission reviews.
        cert_manager: whether cert-manager issues the webhook's certificate.
        serverless: whether the webhook also reviews new pods, for the gate EnablePodProbeMarkerOnServerless.
        metrics_secure: /metrics needs a bearer token of a user who may get it.
    """

    namespace: str = SYSTEM_NAMESPACE
    image: str = DEFAULT_IMAGE
    image_pull_policy: str = "IfNotPresent"
    replicas: int = 2
    feature_gates: str = ""
    allowed_label_keys: frozenset[str] = frozenset()
    cri_socket: str = ""
    webhook: bool = False
    cert_manager: bool = False
    serverless: bool = False
    metrics_secure: bool = True


def namespace(install: Install) -> Manifest:
    """Namespace with level `privileged` for the daemon; the manager's own settings meet `restricted`.

    Without the labels of the other objects: an uninstall keeps it, because Kruise may run there too.
    """
    level = {"pod-security.kubernetes.io/enforce": "privileged"}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": install.namespace, "labels": level},
    }


def manager(install: Install) -> Manifest:
    """Deployment with two replicas: a leader, and a standby with warm caches."""
    labels = labels_of("manager")
    spread = {
        "weight": 100,
        "podAffinityTerm": {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": labels},
        },
    }
    args, ports, mounts, volumes = _webhook_parts(install)
    container = {
        **_container(install, "manager", (*_allowed_labels(install), *args)),
        "env": [_env_of_field("POD_NAMESPACE", "metadata.namespace")],
        "ports": [
            {"name": "metrics", "containerPort": METRICS_PORT},
            {"name": "health", "containerPort": HEALTH_PORT},
            *ports,
        ],
        "livenessProbe": _probe("/healthz", {"port": "health"}, initialDelaySeconds=20),
        "readinessProbe": _readiness({"port": "health"}),
        "resources": {
            "requests": {"cpu": "50m", "memory": "128Mi"},
            "limits": {"memory": "512Mi"},
        },
        "securityContext": _container_security(),
        "volumeMounts": [_token_mount(), *mounts],
    }
    pod = {
        **_pod(MANAGER, container, [_token_volume(), *volumes]),
        "affinity": {
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [spread]}
        },
        "priorityClassName": "system-cluster-critical",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": NON_ROOT,
            "runAsGroup": NON_ROOT,
            "fsGroup": NON_ROOT,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": MANAGER, "namespace": install.namespace, "labels": _versioned(labels)},
        "spec": {
            "replicas": install.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": _versioned(labels)}, "spec": pod},
        },
    }


def disruption_budget(install: Install) -> list[Manifest]:
    """With several managers, a drain of nodes leaves one."""
    if install.replicas < 2:
        return []
    return [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": MANAGER, "namespace": install.namespace, "labels": PART_OF},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels_of("manager")}},
        }
    ]


def _allowed_labels(install: Install) -> tuple[str, ...]:
    keys = ",".join(sorted(install.allowed_label_keys))
    return (f"--allowed-label-keys={keys}",) if keys else ()


class _WebhookParts(NamedTuple):
    args: tuple[str, ...] = ()
    ports: tuple[Manifest, ...] = ()
    mounts: tuple[Manifest, ...] = ()
    volumes: tuple[Manifest, ...] = ()


def _webhook_parts(install: Install) -> _WebhookParts:
    if not install.webhook:
        return _WebhookParts()
    args = (f"--webhook-addr=:{WEBHOOK_PORT}",)
    ports = ({"name": "webhook", "containerPort": WEBHOOK_PORT},)
    if not install.cert_manager:
        return _WebhookParts(args, ports)
    folder = "/etc/kruise-probe/webhook"
    return _WebhookParts(
        (*args, f"--webhook-cert-dir={folder}"),
        ports,
        ({"name": "webhook", "mountPath": folder, "readOnly": True},),
        ({"name": "webhook", "secret": {"secretName": WEBHOOK_SECRET}},),
    )


def daemon(install: Install) -> Manifest:
    """DaemonSet on every Linux node with a kubelet, regardless of taints."""
    labels = labels_of("daemon")
    folder, endpoint = SOCKET_FOLDERS["containerd"], list[str]()
    if install.cri_socket:
        folder = str(PurePosixPath(install.cri_socket).parent)
        endpoint.append(f"--cri-endpoint=unix://{_HOST}{install.cri_socket}")
    target: Manifest = {"port": DAEMON_PORT, "host": "127.0.0.1"}
    if install.metrics_secure:  # health and metrics share the port
        target["scheme"] = "HTTPS"
    container = {
        **_container(install, "daemon", (f"--addr=127.0.0.1:{DAEMON_PORT}", *endpoint)),
        "env": [
            _env_of_field("NODE_NAME", "spec.nodeName"),
            _env_of_field("POD_NAMESPACE", "metadata.namespace"),
        ],
        "livenessProbe": _probe("/healthz", target, initialDelaySeconds=20),
        "readinessProbe": _readiness(target),
        "resources": {
            "requests": {"cpu": "20m", "memory": "64Mi"},
            "limits": {"memory": "256Mi"},
        },
        "securityContext": _container_security(),
        "volumeMounts": [
            {"name": "runtime", "mountPath": f"{_HOST}{folder}", "readOnly": True},
            _token_mount(),
        ],
    }
    runtime = {"name": "runtime", "hostPath": {"path": folder, "type": "Directory"}}
    no_kubelet = {
        "key": VIRTUAL_NODE_LABEL,
        "operator": "NotIn",
        "values": [VIRTUAL_NODE_VALUE],
    }
    pod = {
        **_pod(DAEMON, container, [runtime, _token_volume()]),
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [no_kubelet]}]
                }
            }
        },
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "priorityClassName": "system-node-critical",
        "securityContext": {
            "runAsUser": 0,
            "runAsGroup": 0,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": [{"operator": "Exists"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": DAEMON, "namespace": install.namespace, "labels": _versioned(labels)},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": "10%"},
            },
            "template": {"metadata": {"labels": _versioned(labels)}, "spec": pod},
        },
    }


def labels_of(component: str) -> dict[str, str]:
    """Labels that select the pods of a component. They never change, because selectors are immutable."""
    return {NAME_LABEL: PRODUCT, COMPONENT_LABEL: component}


def _versioned(labels: dict[str, str]) -> dict[str, str]:
    """Add the version. In the pod template it replaces the pods when a new version is applied, also with another image."""
    return {**PART_OF, **labels, VERSION_LABEL: version.TEXT}


def _pod(account: str, container: Manifest, volumes: list[Manifest]) -> Manifest:
    return {
        "serviceAccountName": account,
        "automountServiceAccountToken": False,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "terminationGracePeriodSeconds": 10,
        "containers": [container],
        "volumes": volumes,
    }


def _container(install: Install, mode: str, more: tuple[str, ...]) -> Manifest:
    gates = (f"--feature-gates={install.feature_gates}",) if install.feature_gates else ()
    secure = ("--metrics-secure",) if install.metrics_secure else ()
    return {
        "name": mode,
        "image": install.image,
        "imagePullPolicy": install.image_pull_policy,
        "args": [mode, "--log-format=json", *secure, *gates, *more],
    }


def _container_security() -> Manifest:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def _env_of_field(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _readiness(target: Manifest) -> Manifest:
    """Ready 2 s after the start: the kubelet's first attempt comes before the process listens. Unready after 30 s."""
    return _probe("/readyz", target, periodSeconds=2, failureThreshold=15)


def _probe(path: str, target: Manifest, **numbers: int) -> Manifest:
    action = {"path": path, **target}
    return {"httpGet": action, "periodSeconds": 10, "timeoutSeconds": 5, **numbers}


def _token_mount() -> Manifest:
    return {"name": "token", "mountPath": _TOKEN_FOLDER, "readOnly": True}


def _token_volume() -> Manifest:
    authority = {"key": "ca.crt", "path": "ca.crt"}
    own_namespace = {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
    return {
        "name": "token",
        "projected": {
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [authority]}},
                {"downwardAPI": {"items": [own_namespace]}},
            ]
        },
    }
