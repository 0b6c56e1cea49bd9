"""The two CustomResourceDefinitions.

Field names are Kruise's. Additions: bounds, defaults of httpGet, CEL rules, short names, categories, printer columns
and status fields.

Source: openkruise/kruise config/crd/bases; core/v1 Probe of Kubernetes 1.36.
Differs: the additions above. Absent numbers get no default, as Kruise's defaults differ from those of core/v1.
"""

from collections.abc import Collection
from typing import Any

from kruise_probe.api import probe_validation, validation
from kruise_probe.api.extraction import MAX_PATTERN
from kruise_probe.api.labels import MAX_KEY
from kruise_probe.api.names import GROUP, VERSION
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.manifests import rules
from kruise_probe.manifests.probe_schema import probe
from kruise_probe.manifests.schema import (
    Schema,
    anything,
    date_time,
    described,
    int64,
    list_of,
    map_of,
    record,
    ruled,
    text,
)

CATEGORIES = ["kruise-probe"]


def marker_crd(allowed_labels: Collection[str] = ()) -> dict[str, Any]:
    """PodProbeMarker: namespaced, short name `ppm`. `allowed_labels` as the manager's --allowed-label-keys."""
    return _crd(
        kind="PodProbeMarker",
        short_name="ppm",
        scope="Namespaced",
        description="Selects pods, probes their containers, and marks the pods with the newest results.",
        spec=_marker_spec(allowed_labels),
        status=_marker_status(),
        required=["spec"],
        columns=[
            _column("Matched", "integer", ".status.matchedPods", "Pods that the selector matches"),
            _column("Succeeded", "integer", ".status.succeeded", "Pods whose probes all succeed"),
            _column("Failed", "integer", ".status.failed", "Pods with a failing probe"),
            _column("Unknown", "integer", ".status.unknown", "Pods with a probe without a result"),
            _condition_column("Synced", "Whether every node has the current probes"),
            _condition_column(
                "Conflict", "Whether a marker with precedence owns some of its marks"
            ),
            _condition_column("Degraded", "Whether part of the marker is not in effect"),
            _column("Age", "date", ".metadata.creationTimestamp", ""),
        ],
    )


def node_pod_probe_crd() -> dict[str, Any]:
    """NodePodProbe: cluster-scoped, named as its node, short name `npp`."""
    return _crd(
        kind="NodePodProbe",
        short_name="npp",
        scope="Cluster",
        description="The probes to run on one node (spec, written by the manager) and their results (status, written by its daemon).",
        spec=_node_spec(),
        status=_node_status(),
        required=[],
        columns=[_column("Age", "date", ".metadata.creationTimestamp", "")],
    )


def all_crds(allowed_labels: Collection[str] = ()) -> list[dict[str, Any]]:
    return [marker_crd(allowed_labels), node_pod_probe_crd()]


def _crd(
    *,
    kind: str,
    short_name: str,
    scope: str,
    description: str,
    spec: Schema,
    status: Schema,
    required: list[str],
    columns: list[dict[str, str]],
) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    root = record(
        {
            "apiVersion": text(),
            "kind": text(),
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
        required=required,
    )
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short_name],
                "categories": CATEGORIES,
            },
            "scope": scope,
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": described(description, root)},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                }
            ],
        },
    }


def _column(name: str, kind: str, path: str, description: str) -> dict[str, str]:
    column = {"name": name, "type": kind, "jsonPath": path}
    return {**column, "description": description} if description else column


def _condition_column(kind: str, description: str) -> dict[str, str]:
    path = f'.status.conditions[?(@.type=="{kind}")].status'
    return _column(kind, "string", path, description)


def _marker_spec(allowed_labels: Collection[str]) -> Schema:
    probes = list_of(_container_probe(allowed_labels), maximum=validation.MAX_PROBES, minimum=1)
    return described(
        "The pods to select and the probes to run.",
        ruled(
            record(
                {
                    "selector": _selector(),
                    "probes": described(
                        "Probes to run on every matching pod; names must be unique.",
                        ruled(probes, *rules.PROBES),
                    ),
                },
                required=["selector", "probes"],
            ),
            *rules.SPEC,
        ),
    )


def _selector() -> Schema:
    values = list_of(
        text(maximum=validation.MAX_LABEL_VALUE), maximum=validation.MAX_SELECTOR_ITEMS
    )
    expression = record(
        {
            "key": described("Label key.", ruled(text(maximum=MAX_KEY), rules.SELECTOR_KEY)),
            "operator": text(enum=["In", "NotIn", "Exists", "DoesNotExist"]),
            "values": described(
                "Label values for In and NotIn.", ruled(values, rules.SELECTOR_VALUES)
            ),
        },
        required=["key", "operator"],
    )
    labels = map_of(text(maximum=validation.MAX_LABEL_VALUE), maximum=validation.MAX_SELECTOR_ITEMS)
    expressions = list_of(
        ruled(expression, *rules.SELECTOR_EXPRESSION), maximum=validation.MAX_SELECTOR_ITEMS
    )
    selector = record(
        {
            "matchLabels": described("Labels that a pod must have.", ruled(labels, *rules.LABELS)),
            "matchExpressions": described("Requirements that a pod must all meet.", expressions),
        }
    )
    return {
        "description": "Label selector of the pods; must not be empty; immutable.",
        **ruled(selector, *rules.SELECTOR),
        "x-kubernetes-map-type": "atomic",
    }


def _container_probe(allowed_labels: Collection[str]) -> Schema:
    container_probe = record(
        {
            "name": described(
                "Name of the probe; unique in the marker, must not contain '#'.",
                ruled(text(maximum=probe_validation.MAX_NAME, minimum=1), rules.PROBE_NAME),
            ),
            "containerName": described(
                "Name of the container to probe: a regular container or a sidecar.",
                text(maximum=validation.MAX_CONTAINER_NAME, minimum=1),
            ),
            "probe": probe(),
            "markerPolicy": described(
                "Labels and annotations to write to the pod per state. Keys that only policies of other states name are "
                "removed; with a single policy the opposite result removes its keys.",
                ruled(
                    list_of(_policy(allowed_labels), maximum=validation.MAX_POLICIES),
                    rules.POLICIES,
                ),
            ),
            "podConditionType": described(
                "Pod condition type for the newest result, such as example.com/healthy: Succeeded is True, "
                "Failed is False.",
                ruled(text(maximum=MAX_KEY), *rules.CONDITION_TYPE),
            ),
        },
        required=["name", "containerName", "probe"],
    )
    return ruled(container_probe, rules.CONTAINER_PROBE)


def _policy(allowed_labels: Collection[str]) -> Schema:
    labels = map_of(text(maximum=validation.MAX_LABEL_VALUE), maximum=validation.MAX_MARKS)
    annotations = map_of(
        text(maximum=validation.MAX_ANNOTATION_VALUE), maximum=validation.MAX_MARKS
    )
    policy = record(
        {
            "state": described(
                "State in which the policy applies. Without a policy for Unknown, that state changes no labels or "
                "annotations. Kruise allows Succeeded and Failed only.",
                text(enum=[each.value for each in ProbeState]),
            ),
            "labels": described(
                "Labels to set on the pod.", ruled(labels, *rules.policy_labels(allowed_labels))
            ),
            "annotations": described(
                "Annotations to set on the pod.", ruled(annotations, *rules.ANNOTATIONS)
            ),
            "fromMessage": described(
                "Labels and annotations whose values are extracted from the message of the result. If the message has no "
                "valid value, the static value of the same key is used; without one the key is removed. "
                "Kruise's CRD prunes this field.",
                ruled(
                    list_of(_message_value(allowed_labels), maximum=validation.MAX_FROM_MESSAGE),
                    *rules.FROM_MESSAGE,
                ),
            ),
        },
        required=["state"],
    )
    return ruled(policy, rules.POLICY)


def _message_value(allowed_labels: Collection[str]) -> Schema:
    key = text(maximum=MAX_KEY)
    value = record(
        {
            "label": described(
                "Key of the label to set; either this or annotation.",
                ruled(key, *rules.from_message_label(allowed_labels)),
            ),
            "annotation": described(
                "Key of the annotation to set; its value has at most 1024 bytes.",
                ruled(key, *rules.FROM_MESSAGE_ANNOTATION),
            ),
            "regex": described(
                "RE2 pattern. The value is group 1 of its first match, or the whole match if it has no group. "
                "Without a pattern the value is the first line of the message that is not blank, trimmed.",
                ruled(text(maximum=MAX_PATTERN), rules.PATTERN),
            ),
        }
    )
    return ruled(value, rules.MESSAGE_VALUE)


def _marker_status() -> Schema:
    condition = record(
        {
            "type": described("Synced, Conflict or Degraded.", text()),
            "status": text(enum=["True", "False", "Unknown"]),
            "reason": described("Machine-readable reason for the status.", text()),
            "message": described("Human-readable explanation with a remedy.", text()),
            "lastTransitionTime": described("Time of the last change of status.", date_time()),
            "observedGeneration": described(
                "Generation of the marker that the condition is based on.", int64()
            ),
        },
        required=["type", "status"],
    )
    return record(
        {
            "observedGeneration": described(
                "Latest generation of the marker that the manager has observed.", int64()
            ),
            "matchedPods": described("Number of selected pods that can be probed.", int64()),
            "succeeded": described("Number of matched pods whose probes all succeed.", int64()),
            "failed": described("Number of matched pods with a failed probe.", int64()),
            "unknown": described("Number of the other matched pods.", int64()),
            "nodesBehind": described(
                "Number of nodes whose NodePodProbe does not reflect the current spec.", int64()
            ),
            "conditions": {
                "description": "Whether the marker is fully in effect, and if not, why.",
                **list_of(condition),
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        },
    )


def _node_spec() -> Schema:
    container_probe = record(
        {
            "name": described("<marker>#<probe>", text()),
            "containerName": described("Name of the container to probe.", text()),
            "probe": described("A core/v1 Probe, with the fields of a marker's probe.", anything()),
        },
        required=["name", "containerName", "probe"],
    )
    pod = record(
        {
            "name": described("Name of the pod.", text()),
            "namespace": described("Namespace of the pod.", text()),
            "uid": described(
                "UID of the pod; a recreated pod of the same name has another.", text()
            ),
            "IP": described("IP of the pod; target of network probes.", text()),
            "probes": described("Probes to run on the pod.", list_of(container_probe)),
        },
        required=["name", "namespace", "uid", "IP"],
    )
    return record({"podProbes": described("Pods of this node to probe.", list_of(pod))})


def _node_status() -> Schema:
    """An open schema: with a closed one, a write costs the API server half as much again."""
    return described(
        "Written by the daemon. podProbeStatuses[] contains the newest results by pod: name, namespace, uid and "
        "probeStates[], of which each has name (<marker>#<probe>), state (Succeeded, Failed or Unknown), lastProbeTime, "
        "lastTransitionTime, message, containerID and probeHash.",
        anything(),
    )
