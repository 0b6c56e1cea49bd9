"""Manifests of the webhook. The default install does not need it, because its CRDs have the rules.

Use it with Kruise's own CRDs (validation), and with `EnablePodProbeMarkerOnServerless` (annotations).
The pod webhook has failure policy Ignore, so it never blocks pods.

Source: Kruise config/webhook; admissionregistration/v1; cert-manager's CA injector.
Differs: RBAC is limited by name to one Secret and two configurations.
"""

from typing import Final

from kruise_probe.api.names import GROUP, VERSION
from kruise_probe.manifests.rbac import MANAGER
from kruise_probe.manifests.workloads import WEBHOOK_PORT, WEBHOOK_SECRET, Manifest, labels_of

SERVICE: Final = "kruise-probe-webhook"
CONFIGURATION: Final = "kruise-probe"

VALIDATE_MARKERS: Final = "/validate-apps-kruise-io-v1alpha1-podprobemarker"
VALIDATE_NODE_POD_PROBES: Final = "/validate-apps-kruise-io-v1alpha1-nodepodprobe"
MUTATE_PODS: Final = "/mutate-pod"

_REGISTRATION: Final = "admissionregistration.k8s.io"
_RBAC: Final = "rbac.authorization.k8s.io"
_NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"


def dns_names(namespace: str) -> list[str]:
    """DNS names of the Service; API servers verify the first one."""
    return [f"{SERVICE}.{namespace}.svc", f"{SERVICE}.{namespace}.svc.cluster.local"]


def webhook(
    namespace: str, *, serverless: bool = False, cert_manager: bool = False
) -> list[Manifest]:
    """Build Service and configurations, with either RBAC and Secret for self-managed certificates or cert-manager objects."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVICE, "namespace": namespace, "labels": labels_of("manager")},
        "spec": {
            "selector": labels_of("manager"),
            "ports": [{"name": "webhook", "port": 443, "targetPort": WEBHOOK_PORT}],
        },
    }
    return [
        *(_cert_manager(namespace) if cert_manager else _own_certificates(namespace)),
        service,
        _validating(namespace, cert_manager=cert_manager),
        *([_mutating(namespace, cert_manager=cert_manager)] if serverless else []),
    ]


def _validating(namespace: str, *, cert_manager: bool) -> Manifest:
    markers = _webhook(
        namespace, "podprobemarkers", VALIDATE_MARKERS, _rule(GROUP, VERSION), policy="Fail"
    )
    # Updates that leave the spec unchanged, as of finalizers, skip the webhook: managers must start and markers must be
    # deletable while no webhook runs. has() is needed, as Kruise's CRD allows no spec and a CEL error denies.
    unchanged = (
        "request.operation != 'CREATE' && has(object.spec) == has(oldObject.spec) && "
        "(!has(object.spec) || object.spec == oldObject.spec)"
    )
    markers["matchConditions"] = [{"name": "spec-changes", "expression": f"!({unchanged})"}]
    return _configuration(
        "ValidatingWebhookConfiguration",
        namespace,
        [
            markers,
            _webhook(
                namespace,
                "nodepodprobes",
                VALIDATE_NODE_POD_PROBES,
                _rule(GROUP, VERSION),
                policy="Ignore",
            ),
        ],
        cert_manager=cert_manager,
    )


def _mutating(namespace: str, *, cert_manager: bool) -> Manifest:
    elsewhere = {
        "key": _NAMESPACE_LABEL,
        "operator": "NotIn",
        "values": ["kube-system", namespace],
    }
    pods = _webhook(
        namespace, "pods", MUTATE_PODS, _rule("", "v1", operations=("CREATE",)), policy="Ignore"
    )
    pods["namespaceSelector"] = {"matchExpressions": [elsewhere]}
    pods["reinvocationPolicy"] = "IfNeeded"
    return _configuration(
        "MutatingWebhookConfiguration", namespace, [pods], cert_manager=cert_manager
    )


def _rule(
    group: str, version: str, *, operations: tuple[str, ...] = ("CREATE", "UPDATE")
) -> Manifest:
    return {"apiGroups": [group], "apiVersions": [version], "operations": list(operations)}


def _webhook(namespace: str, resource: str, path: str, rule: Manifest, *, policy: str) -> Manifest:
    service = {"name": SERVICE, "namespace": namespace, "path": path}
    return {
        "name": f"{resource}.probe.kruise.io",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": service},
        "rules": [{**rule, "resources": [resource]}],
        "failurePolicy": policy,
        "sideEffects": "None",
        "timeoutSeconds": 5,
    }


def _configuration(
    kind: str, namespace: str, webhooks: list[Manifest], *, cert_manager: bool
) -> Manifest:
    metadata: Manifest = {"name": CONFIGURATION}
    if cert_manager:
        metadata["annotations"] = {"cert-manager.io/inject-ca-from": f"{namespace}/{SERVICE}"}
    return {
        "apiVersion": f"{_REGISTRATION}/v1",
        "kind": kind,
        "metadata": metadata,
        "webhooks": webhooks,
    }


def _own_certificates(namespace: str) -> list[Manifest]:
    """The Secret is empty here and filled by the manager, which so needs no right to create Secrets."""
    name = f"{MANAGER}-webhook"
    there = {"name": name, "namespace": namespace}
    configurations = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"]
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": WEBHOOK_SECRET, "namespace": namespace},
            "type": "Opaque",
        },
        _role("Role", there, "", ["secrets"], WEBHOOK_SECRET),
        _binding("Role", there, namespace),
        _role("ClusterRole", {"name": name}, _REGISTRATION, configurations, CONFIGURATION),
        _binding("ClusterRole", {"name": name}, namespace),
    ]


def _role(kind: str, metadata: Manifest, group: str, resources: list[str], only: str) -> Manifest:
    rule = {
        "apiGroups": [group],
        "resources": resources,
        "resourceNames": [only],
        "verbs": ["get", "patch"],
    }
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, "rules": [rule]}


def _binding(role_kind: str, metadata: Manifest, namespace: str) -> Manifest:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{role_kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": role_kind, "name": metadata["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": MANAGER, "namespace": namespace}],
    }


def _cert_manager(namespace: str) -> list[Manifest]:
    metadata = {"name": SERVICE, "namespace": namespace}
    return [
        {
            "apiVersion": "cert-manager.io/v1",
            "kind": "Issuer",
            "metadata": metadata,
            "spec": {"selfSigned": {}},
        },
        {
            "apiVersion": "cert-manager.io/v1",
            "kind": "Certificate",
            "metadata": metadata,
            "spec": {
                "secretName": WEBHOOK_SECRET,
                "dnsNames": dns_names(namespace),
                "issuerRef": {"kind": "Issuer", "name": SERVICE},
            },
        },
    ]
