"""Keeps as many pods as each Fleet wants."""

from typing import Any

import kopf
import kubernetes
from kubernetes.client import ApiException

LABEL = "example.com/fleet"
LOST = "example.com/lost-pod"

kubernetes.config.load_config()
core = kubernetes.client.CoreV1Api()
custom = kubernetes.client.CustomObjectsApi()


@kopf.on.resume("fleets.example.com")
@kopf.on.create("fleets.example.com")
@kopf.on.update("fleets.example.com")
def scale(name: str, namespace: str, spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
    # kopf's index of pods may lack those that this handler has just created.
    found = core.list_namespaced_pod(namespace, label_selector=f"{LABEL}={name}").items
    owned = [pod for pod in found if not pod.metadata.deletion_timestamp]
    replicas = spec.get("replicas", 1)
    for _ in range(len(owned), replicas):
        main = {"name": "main", "image": spec.get("image", "")}
        pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [main]}}
        kopf.adopt(pod)
        kopf.label(pod, {LABEL: name})
        core.create_namespaced_pod(namespace, pod)
    for pod in owned[replicas:]:
        try:
            core.delete_namespaced_pod(pod.metadata.name, namespace)
        except ApiException as error:
            if error.status != 404:
                raise
    patch.status["replicas"] = replicas


@kopf.on.event("pods", labels={LABEL: kopf.PRESENT})
def lost(
    event: kopf.RawEvent, meta: kopf.Meta, namespace: str, labels: kopf.Labels, **_: Any
) -> None:
    """The changed annotation makes kopf handle the Fleet again, after what it does with it now."""
    if event["type"] == "DELETED" or meta.get("deletionTimestamp"):
        note = {"metadata": {"annotations": {LOST: meta["uid"]}}}
        custom.patch_namespaced_custom_object(
            "example.com", "v1", namespace, "fleets", labels[LABEL], note
        )
