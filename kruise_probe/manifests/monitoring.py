"""What lets a Prometheus operator find the manager; the daemons' ports are on loopback unless asked otherwise."""

from typing import Any

from kruise_probe.manifests.rbac import MANAGER
from kruise_probe.manifests.workloads import METRICS_PORT, labels_of


def monitoring(namespace: str) -> list[dict[str, Any]]:
    """A headless Service of the managers' metrics, and the ServiceMonitor that follows it."""
    labels = labels_of("manager")
    metadata = {"name": f"{MANAGER}-metrics", "namespace": namespace, "labels": labels}
    port = {"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"clusterIP": "None", "selector": labels, "ports": [port]},
    }
    monitor = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": metadata,
        "spec": {"selector": {"matchLabels": labels}, "endpoints": [{"port": "metrics"}]},
    }
    return [service, monitor]
