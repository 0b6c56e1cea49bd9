"""The pods of a workload in a file: the playground has no controllers, so their first pods are made of the template.

Source: kube-controller-manager (deployment, replicaset, statefulset, daemonset).
Differs: made once and owned by nobody: what is deleted stays away, and nothing is scaled.
"""

from typing import Any, Final

Json = dict[str, Any]

WORKLOADS: Final = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"})
IGNORED: Final = frozenset({("v1", "Service"), ("policy/v1", "PodDisruptionBudget")})
"""What files of pods often hold, and no probe depends on."""

MOST_REPLICAS: Final = 100


def is_workload(document: Json) -> bool:
    return document["apiVersion"] == "apps/v1" and document["kind"] in WORKLOADS


def pods_of(workload: Json) -> list[Json]:
    """The pods, `<name>-0` and so on, in the workload's namespace.

    Raises:
        ValueError: it has no usable template or number of replicas; says what to write.
    """
    given = workload.get("spec")
    spec: Json = given if isinstance(given, dict) else {}
    template = spec.get("template")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise ValueError("has no spec.template.spec; write the pod's containers there")
    labelled = template.get("metadata") or {}
    if not isinstance(labelled, dict):
        raise ValueError("spec.template.metadata is no mapping; write the pod's labels there")
    replicas = spec.get("replicas")
    if replicas is None or workload["kind"] == "DaemonSet":
        replicas = 1
    if not isinstance(replicas, int) or not 0 <= replicas <= MOST_REPLICAS:
        raise ValueError(f"spec.replicas is {replicas!r}; write 0 to {MOST_REPLICAS}")
    metadata = workload["metadata"]
    place = {"namespace": metadata["namespace"]} if "namespace" in metadata else {}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **labelled,
                **place,
                "name": f"{metadata['name']}-{number}",
            },
            "spec": template["spec"],
        }
        for number in range(replicas)
    ]
