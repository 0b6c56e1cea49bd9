"""Manifests of the webhook. The default install does not need it, because its CRDs have the rules.

Use it with Kruise's own CRDs (validation), and with `EnablePodProbeMarkerOnServerless` (annotations).
The pod webhook has failure policy Ignore, so it never blocks pods.

Source: Kruise config/webhook; admissionregistration/v1; cert-manager's CA injector.
Differs: RBAC is limited by name to one Secret and two configurations.
"""

from typing import Final

from kruise_probe.api.names import GROUP, VERSION
from kruise_probe.manifests.rbac import MANAGER, PART_OF, binding, role
from kruise_probe.manifests.workloads import WEBHOOK_PORT, WEBHOOK_SECRET, Manifest, labels_of

SERVICE: Final = "kruise-probe-webhook"
CONFIGURATION: Final = "kruise-probe"

VALIDATE_MARKERS: Final = "/validate-apps-kruise-io-v1alpha1-podprobemarker"
MUTATE_PODS: Final = "/mutate-pod"

_REGISTRATION: Final = "admissionregistration.k8s.io"
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
        "metadata": {"name": SERVICE, "namespace": namespace, "labels": PART_OF},
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
    # Updates that leave the spec unchanged, such as those of finalizers, skip the webhook. So managers can start, and
    # markers can be deleted, while no webhook runs. Kruise's CRD allows a marker without spec: without has(), the
    # expression would fail, and the update would be denied.
    unchanged = (
        "request.operation != 'CREATE' && has(object.spec) == has(oldObject.spec) && "
        "(!has(object.spec) || object.spec == oldObject.spec)"
    )
    markers["matchConditions"] = [{"name": "spec-changes", "expression": f"!({unchanged})"}]
    return _configuration(
        "ValidatingWebhookConfiguration", namespace, [markers], cert_manager=cert_manager
    )


def _mutating(namespace: str, *, cert_manager: bool) -> Manifest:
    other_namespaces = {
        "key": _NAMESPACE_LABEL,
        "operator": "NotIn",
        "values": ["kube-system", namespace],
    }
    pods = _webhook(
        namespace, "pods", MUTATE_PODS, _rule("", "v1", operations=("CREATE",)), policy="Ignore"
    )
    pods["namespaceSelector"] = {"matchExpressions": [other_namespaces]}
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
    metadata: Manifest = {"name": CONFIGURATION, "labels": PART_OF}
    if cert_manager:
        metadata["annotations"] = {"cert-manager.io/inject-ca-from": f"{namespace}/{SERVICE}"}
    return {
        "apiVersion": f"{_REGISTRATION}/v1",
        "kind": kind,
        "metadata": metadata,
        "webhooks": webhooks,
    }


def _own_certificates(namespace: str) -> list[Manifest]:
    """An empty Secret, and RBAC to fill it. So the manager needs no right to create Secrets."""
    cluster_wide = {"name": f"{MANAGER}-webhook"}
    namespaced = {**cluster_wide, "namespace": namespace}
    configurations = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"]
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": WEBHOOK_SECRET, "namespace": namespace, "labels": PART_OF},
            "type": "Opaque",
        },
        role("Role", namespaced, [_write_rule("", ["secrets"], WEBHOOK_SECRET)]),
        binding("Role", namespaced, namespace, MANAGER),
        role(
            "ClusterRole",
            cluster_wide,
            [_write_rule(_REGISTRATION, configurations, CONFIGURATION)],
        ),
        binding("ClusterRole", cluster_wide, namespace, MANAGER),
    ]


def _write_rule(group: str, resources: list[str], name: str) -> Manifest:
    return {
        "apiGroups": [group],
        "resources": resources,
        "resourceNames": [name],
        "verbs": ["get", "patch"],
    }


def _cert_manager(namespace: str) -> list[Manifest]:
    metadata = {"name": SERVICE, "namespace": namespace, "labels": PART_OF}
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
