"""What an install consists of: the objects of the YAML files beside this module, with the values of its options.

Source: Kruise config/manager, config/daemonconfig, config/rbac and config/webhook; pod-security-standards; kubernetes
test/e2e/testing-manifests/auth per_node_validatingadmissionpolicy; cert-manager's CA injector.
Differs: no debug switches in the environment, no capability, no root for the manager. The daemon has four rules, none on
pods or secrets; the manager has none on secrets but for the webhook's own. `metrics_rbac.yaml` adds two rules to both,
`own_node_reads.yaml` one to the manager and three in place of two to the daemon. The
policy also restricts the daemon's heartbeat Lease, and the source host of its events.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from kruise_probe import __version__
from kruise_probe.api.names import SYSTEM_NAMESPACE, WEBHOOK_SECRET
from kruise_probe.manifests import Manifest, objects_in
from kruise_probe.manifests.crds import all_crds

MANAGER: Final = "kruise-probe-manager"
DAEMON: Final = "kruise-probe-daemon"
"""Names of the workloads, their service accounts and roles."""
PRODUCT: Final = "kruise-probe"
NAME_LABEL: Final = "app.kubernetes.io/name"
"""With the value `PRODUCT`, a label of every object that an uninstall deletes: all but the namespace and the CRDs."""
READS_OF_ALL: Final = [
    {
        "apiGroups": ["apps.kruise.io"],
        "resources": ["nodepodprobes"],
        "verbs": ["get", "list", "watch"],
    },
    {
        "apiGroups": ["apps.kruise.io"],
        "resources": ["nodepodprobes/status"],
        "verbs": ["patch", "update"],
    },
]
"""The first rules of daemons, which own reads replace. They read the NodePodProbes of all nodes: the error of a malformed
patch contains the object, and no admission policy has seen it."""
DEFAULT_IMAGE: Final = f"ghcr.io/kruise-probe/kruise-probe:{__version__}"
WEBHOOK_PORT: Final = 9443
SOCKET_FOLDERS: Final = {
    "containerd": "/run/containerd",
    "cri-o": "/run/crio",
    "k3s": "/run/k3s/containerd",
    "k0s": "/run/k0s",
    "microk8s": "/var/snap/microk8s/common/run",
    "any": "/run",
}
"""Folders of the runtimes' sockets; `any` is for sockets in /run itself and for mixed nodes."""


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
        own_node_reads: daemons read as their nodes; no rule lets them read all NodePodProbes.
    """

    namespace: str = SYSTEM_NAMESPACE
    image: str = DEFAULT_IMAGE
    image_pull_policy: str = "IfNotPresent"
    replicas: int = 2
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    allowed_label_keys: frozenset[str] = frozenset()
    cri_socket: str = ""
    webhook: bool = False
    cert_manager: bool = False
    serverless: bool = False
    metrics_secure: bool = True
    own_node_reads: bool = False


def default_install(install: Install, *, admission_policy: bool = True) -> list[Manifest]:
    """All objects in the order to apply them: CRDs, namespace, RBAC, the daemons' policy, the webhook and the workloads.

    Set `admission_policy` to False before Kubernetes 1.30, which has no ValidatingAdmissionPolicy.
    """
    objects = all_crds(install.allowed_label_keys)
    wanted = {
        "namespace": True,
        "manager_rbac": True,
        "daemon_rbac": True,
        "metrics_rbac": install.metrics_secure,
        "own_node_policy": admission_policy,
        "own_node_reads": install.own_node_reads,
    }
    for file, is_wanted in wanted.items():
        if is_wanted:
            objects += objects_in(file, install.namespace)
    if install.own_node_reads:
        _remove_reads_of_all(objects)
    if install.webhook:
        objects += webhook(install)
    if install.replicas > 1:
        objects += objects_in("disruption_budget", install.namespace)
    return [
        *objects,
        manager(install),
        daemon(install),
    ]


def _remove_reads_of_all(objects: list[Manifest]) -> None:
    """Remove the rules by which daemons read the NodePodProbes of all nodes."""
    for role in objects:
        if (role["kind"], role["metadata"]["name"]) == ("ClusterRole", DAEMON):
            role["rules"] = [rule for rule in role["rules"] if rule not in READS_OF_ALL]


def manager(install: Install) -> Manifest:
    """The manager's Deployment."""
    deployment, pod, container = _workload("manager", install)
    deployment["spec"]["replicas"] = install.replicas
    if install.allowed_label_keys:
        keys = ",".join(sorted(install.allowed_label_keys))
        container["args"].append(f"--allowed-label-keys={keys}")
    if install.webhook:
        container["args"].append(f"--webhook-addr=:{WEBHOOK_PORT}")
        container["ports"].append({"name": "webhook", "containerPort": WEBHOOK_PORT})
    if install.webhook and install.cert_manager:
        folder = "/etc/kruise-probe/webhook"
        container["args"].append(f"--webhook-cert-dir={folder}")
        mount = {"name": "webhook", "mountPath": folder, "readOnly": True}
        container["volumeMounts"].append(mount)
        pod["volumes"].append(
            {
                "name": "webhook",
                "secret": {"secretName": WEBHOOK_SECRET},
            }
        )
    return deployment


def daemon(install: Install) -> Manifest:
    """The daemon's DaemonSet. It mounts the node's folder at /host, where `daemon.cri.endpoints` searches for the socket."""
    folder = SOCKET_FOLDERS["containerd"]
    if install.cri_socket:
        folder = str(PurePosixPath(install.cri_socket).parent)
    daemon_set, _, container = _workload("daemon", install, folder=folder)
    if install.cri_socket:
        container["args"].append(f"--cri-endpoint=unix:///host{install.cri_socket}")
    if not install.metrics_secure:  # health and metrics share the port
        for probe in ("livenessProbe", "readinessProbe"):
            del container[probe]["httpGet"]["scheme"]
    return daemon_set


def _workload(mode: str, install: Install, **values: str) -> tuple[Manifest, Manifest, Manifest]:
    """The workload of a mode with the options of both, its pod and its container."""
    values |= {"image": install.image, "pullPolicy": install.image_pull_policy}
    workload, *_ = objects_in(
        mode,
        install.namespace,
        version=__version__,
        **values,
    )
    pod = workload["spec"]["template"]["spec"]
    container = pod["containers"][0]
    if not install.metrics_secure:
        container["args"].remove("--metrics-secure")
    if install.own_node_reads:
        container["args"].append("--own-node-reads")
    if install.feature_gates:
        gates = [f"{name}={str(on).lower()}" for name, on in install.feature_gates.items()]
        container["args"].append(f"--feature-gates={','.join(gates)}")
    return workload, pod, container


def webhook(install: Install) -> list[Manifest]:
    """The webhook's certificates, self-managed or of cert-manager, its Service and its configurations.

    The default install does not need it, because its CRDs have the rules. It is for Kruise's own CRDs (validation), and
    for `EnablePodProbeMarkerOnServerless` (annotations).
    """
    namespace = install.namespace
    service, validating, mutating = objects_in("webhook", namespace)
    configurations = [validating, mutating] if install.serverless else [validating]
    if install.cert_manager:
        source = f"{namespace}/{service['metadata']['name']}"
        for configuration in configurations:
            annotations = {"cert-manager.io/inject-ca-from": source}
            configuration["metadata"]["annotations"] = annotations
    certificates = "cert_manager" if install.cert_manager else "own_certificates"
    return [
        *objects_in(certificates, namespace),
        service,
        *configurations,
    ]
