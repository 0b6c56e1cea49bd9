"""Service and ServiceMonitor of the manager, for the Prometheus operator. Daemons listen on loopback by default.

Prometheus sends its own token; its service account needs the ClusterRole `kruise-probe-metrics-reader`.
"""

from typing import Any, Final

from kruise_probe.manifests.rbac import MANAGER
from kruise_probe.manifests.workloads import METRICS_PORT, labels_of

PROMETHEUS_TOKEN_FILE: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"


def monitoring(namespace: str) -> list[dict[str, Any]]:
    """Build a headless Service for the managers' metrics, and its ServiceMonitor."""
    labels = labels_of("manager")
    metadata = {"name": f"{MANAGER}-metrics", "namespace": namespace, "labels": labels}
    port = {"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"clusterIP": "None", "selector": labels, "ports": [port]},
    }
    endpoint = {
        "port": "metrics",
        "scheme": "https",
        "bearerTokenFile": PROMETHEUS_TOKEN_FILE,
        "tlsConfig": {"insecureSkipVerify": True},  # the certificate is self-signed
    }
    monitor = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": metadata,
        "spec": {"selector": {"matchLabels": labels}, "endpoints": [endpoint]},
    }
    return [service, monitor]
