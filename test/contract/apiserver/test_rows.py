"""Objects on both servers: writes, status, patches, deletions, managed fields, refusals."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pytest
from contract import contract_api
from contract.contract_api import Api, marker
from contract.contract_rows import ABSENT, Part, Step, compared, made, normalised, run, step
from support.wire import Json

Cases = Mapping[str, Sequence[Step]]

pod: Callable[..., Json] = partial(contract_api.pod, node="{node}")
NPP = "{ns}-n"
COST = "controller.kubernetes.io/pod-deletion-cost"
HEALTHY = "example.com/healthy"
LABEL = "example.com/mark"
HELD = "example.com/held"
NOTHING: Json = {}


def contract(body: Json) -> Json:
    """A cluster-scoped object, which is removed with the label after the test."""
    labels = {**(body["metadata"].get("labels") or {}), "contract": "{id}"}
    return {**body, "metadata": {**body["metadata"], "labels": labels}}


def node_pod_probe(**spec: Any) -> Json:
    return contract({**contract_api.node_pod_probe(NPP), "spec": spec})


def lease(spec: Json | None = None, **metadata: Any) -> Json:
    return {"metadata": {"name": "l", **metadata}, **({"spec": spec} if spec else {})}


def container(**fields: Any) -> Json:
    body = pod()
    body["spec"]["containers"][0] |= fields
    return body


def with_metadata(body: Json, **metadata: Any) -> Json:
    return {**body, "metadata": {**body["metadata"], **metadata}}


def labelled(**labels: str | None) -> Json:
    return {"metadata": {"labels": labels}}


def conditions(*of: tuple[str, str], **more: Any) -> Json:
    return {
        "status": {"conditions": [{"type": kind, "status": value, **more} for kind, value in of]}
    }


def probe(**fields: Any) -> Json:
    """A marker whose probe has other fields; None removes one."""
    changed = {**marker()["spec"]["probes"][0], **fields}
    return marker(probes=[{key: each for key, each in changed.items() if each is not None}])


def refused(body: Json, *fields: str, resource: str = "podprobemarkers", **more: Any) -> list[Step]:
    """A creation that is invalid in these fields."""
    return [
        step(f"POST {resource}", body, 422, {"fields": sorted(fields), "reason": "Invalid", **more})
    ]


END = step("MERGE podprobemarkers/m", {"metadata": {"finalizers": None}})
AB = conditions(("a/x", "True"), ("b/x", "True"))

OBJECTS: Cases = {
    "a-created-object-has-identity-and-version": [
        made(
            "pods",
            pod(),
            {
                "kind": "Pod",
                "apiVersion": "v1",
                "metadata.namespace": "{ns}",
                "metadata.generation": 1,
                "status.phase": "Pending",
                "status.qosClass": "BestEffort",
            },
        ),
        step("GET pods/p", None, 200, {"metadata.uid": "{0:metadata.uid}", "metadata.resourceVersion": "{0:metadata.resourceVersion}"}),
        step("POST pods", pod(), 409, {"reason": "AlreadyExists", "message": 'pods "p" already exists'}),
    ],
    "a-pod-gets-the-defaults-of-core-v1": [
        made(
            "pods",
            container(
                image="example.com/x:1",
                ports=[{"containerPort": 80, "hostPort": 0}],
                stdin=False,
                readinessProbe={"httpGet": {"port": 80}},
                livenessProbe={"grpc": {"port": 1}, "periodSeconds": 7},
            ),
            {"spec.restartPolicy": "Always", "spec.containers.0.imagePullPolicy": "IfNotPresent", "spec.containers.0.stdin": ABSENT},
        )
    ],
    "a-patch-that-changes-nothing-keeps-the-version": [
        made("pods", pod(labels={"a": "b"})),
        step("MERGE pods/p", labelled(a="b"), 200, {"metadata.resourceVersion": "{0:metadata.resourceVersion}"}),
    ],
    "a-stale-version-conflicts": [
        made("pods", pod()),
        step("MERGE pods/p", labelled(a="1")),
        step(
            "PUT pods/p",
            with_metadata(pod(), resourceVersion="{0:metadata.resourceVersion}"),
            409,
            {
                "reason": "Conflict",
                "message": 'Operation cannot be fulfilled on pods "p": the object has been modified; please apply your '
                "changes to the latest version and try again",
            },
        ),
        step("MERGE pods/p", {"metadata": {"resourceVersion": "{0:metadata.resourceVersion}"}}, 409, {"details": {"name": "p", "kind": "pods"}}),
    ],
    "a-patch-for-another-uid-is-invalid": [
        made("pods", pod()),
        *(
            step(
                f"STRATEGIC pods/p{end}",
                {"metadata": {"uid": "x", "labels": {"a": "b"}}},
                422,
                {"message": 'Pod "p" is invalid: metadata.uid: Invalid value: "x": field is immutable', "fields": ["metadata.uid"]},
            )
            for end in ("", "/status")
        ),
        step("GET pods/p", None, 200, {"metadata.labels": ABSENT}),
        step("PUT pods/p", with_metadata(pod(), uid="x"), 409, {"reason": "Conflict"}),
    ],
    "replacements": [
        made("podprobemarkers", marker()),
        step("PUT podprobemarkers/m", marker(), 422, {"fields": ["metadata.resourceVersion"]}),
        made("events", {"metadata": {"name": "e"}, "involvedObject": {"namespace": "{ns}"}}),
        step(
            "PUT events/e",
            {"metadata": {"name": "e", "labels": {"a": "b"}}, "involvedObject": {"namespace": "{ns}"}},
            200,
            {"metadata.labels": {"a": "b"}},
        ),
        made("pods", pod()),
        step("PUT pods/q", pod(), 400, {"message": Part("does not match the name on the URL")}),
        made("leases", lease()),
        step("PUT leases/l", lease(uid="x"), 409),
        step("PUT leases/l", lease(resourceVersion="0"), 422, {"fields": ["metadata.resourceVersion"]}),
        step("POST leases", with_metadata(lease(), name="m", resourceVersion="5"), 500, {"reason": ABSENT}),
    ],
    "what-is-not-there-is-not-found": [
        step(
            f"{request} {kind}/x{end}",
            NOTHING if request == "MERGE" else None,
            404,
            {"reason": "NotFound", "kind": "Status", "status": "Failure", "message": f'{name} "x" not found'},
        )
        for kind, name in (("pods", "pods"), ("podprobemarkers", "podprobemarkers.apps.kruise.io"))
        for request, end in (("GET", ""), ("MERGE", ""), ("MERGE", "/status"), ("DELETE", ""))
    ]
    + [
        step("POST /api/v1/namespaces/nowhere/pods", contract_api.pod("p", node=""), 404, {"message": 'namespaces "nowhere" not found'}),
        step("GET /api/v1/namespaces/{ns}/things", None, 404),
        step("GET /api/v1/namespaces/{ns}/pods/p/things", None, 404),
        step("GET /apis/none.example.com/v1/things", None, 404),
        step("PUT /api/v1/namespaces/{ns}/pods", NOTHING, 405),
        step("POST pods/p", NOTHING, 405),
        step("POST /api/v1/pods", NOTHING, 405),
        step("HEAD pods", None, 405),
    ],
    "a-senseless-body-is-a-bad-request": [
        step("POST pods", body, 400, {"reason": "BadRequest", "message": Part(text)})
        for body, text in (
            (b"{", "the object provided is unrecognized"),
            ({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "p"}}, 'Node in version "v1" cannot be handled as a Pod'),
            ({"metadata": {"name": "p", "namespace": "other"}}, "the namespace of the provided object does not match"),
            ({"metadata": {"name": "p", "labels": {"a": 1}}}, "json: cannot unmarshal number into"),
        )
    ]
    + [
        step("POST podprobemarkers", {**marker(), "apiVersion": "apps.kruise.io/v9"}, 400),
        step("POST podprobemarkers", {"metadata": {"name": "m"}}, 400),
    ],
    "bad-metadata-is-invalid": [
        step("POST podprobemarkers", {**marker(), "metadata": metadata}, 422, {"reason": "Invalid", "message": Part(field)})
        for metadata, field in (
            (NOTHING, "metadata.name"),
            ({"name": "Upper"}, "metadata.name"),
            ({"name": "p", "labels": {"a b": "c"}}, "metadata.labels"),
            ({"name": "p", "labels": {"a": "b c"}}, "metadata.labels"),
            ({"name": "p", "labels": {"a": "x" * 64}}, "metadata.labels"),
            ({"name": "p", "annotations": {"a b": "c"}}, "metadata.annotations"),
            ({"name": "p", "annotations": {"a": "x" * 262145}}, "metadata.annotations"),
            ({"name": "p", "finalizers": ["a b"]}, "metadata.finalizers"),
            ({"name": "p", "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": ""}]}, "metadata.ownerReferences"),
        )
    ],
    "invalid-pods-are-refused-at-the-field": [
        *refused({"metadata": {"name": "p"}}, "spec.containers", resource="pods", message='Pod "p" is invalid: spec.containers: Required value'),
        *refused(container(name="", image=""), "spec.containers[0].image", "spec.containers[0].name", resource="pods"),
        *refused(container(name="C"), "spec.containers[0].name", resource="pods"),
        *refused(container(imagePullPolicy="Sometimes"), "spec.containers[0].imagePullPolicy", resource="pods"),
        *refused(
            container(livenessProbe={"exec": {"command": ["x"]}, "periodSeconds": -1}),
            "spec.containers[0].livenessProbe.periodSeconds",
            resource="pods",
        ),
        *refused(lease({"leaseDurationSeconds": 0}), "spec.leaseDurationSeconds", resource="leases"),
    ],
    "a-time-of-an-event-can-be-removed": [
        made("events", {"metadata": {"name": "e"}, "involvedObject": {"namespace": "{ns}"}, "lastTimestamp": "2026-01-02T03:04:05Z"}),
        step("MERGE events/e", {"lastTimestamp": None}, 200, {"lastTimestamp": None}),
    ],
    "of-a-pod-only-the-image-may-change": [
        made("pods", pod()),
        step("STRATEGIC pods/p", {"spec": {"containers": [{"name": "c", "image": "j"}]}}, 200, {"metadata.generation": 2}),
        step("STRATEGIC pods/p", {"spec": {"nodeName": "other"}}, 422, {"fields": ["spec"]}),
        step("MERGE pods/p", {"spec": None}, 422, {"fields": ["spec.containers"]}),
    ],
    "an-object-can-be-too-large": [
        step("POST pods", container(command=["x" * 1_600_000]), 500, {"message": "etcdserver: request is too large"}),
        step("POST nodepodprobes", b"x" * (3 << 20) + b"x", 413, {"reason": "RequestEntityTooLarge"}),
    ],
    "unknown-fields-are-told": [
        *(
            step(
                f"POST {kind}",
                {**body, "spec": {**body["spec"], "nonsense": 1}},
                400,
                {"message": Part('strict decoding error: unknown field "spec.nonsense"')},
                fieldValidation="Strict",
            )
            for kind, body in (("pods", pod()), ("podprobemarkers", marker()))
        ),
        made(
            "pods",
            {**pod(), "spec": {**pod()["spec"], "nonsense": 1}},
            {"spec.nonsense": ABSENT},
            fieldValidation="Ignore",
        ),
    ],
    "a-namespace": [
        made(
            "namespaces",
            {"metadata": {"name": "{ns}-b"}},
            {"status": {"phase": "Active"}, "metadata.labels": {"kubernetes.io/metadata.name": "{ns}-b"}},
        ),
        step("POST /apis/apps.kruise.io/v1alpha1/namespaces/{ns}-b/podprobemarkers", with_metadata(marker(), finalizers=[HELD]), 201),
        step("DELETE namespaces/{ns}-b", None, 200, {"status.phase": "Terminating"}),
        step(
            "POST /apis/apps.kruise.io/v1alpha1/namespaces/{ns}-b/podprobemarkers",
            marker("late"),
            403,
            {"reason": "Forbidden", "details.causes.0.reason": "NamespaceTerminating"},
        ),
        step("MERGE /apis/apps.kruise.io/v1alpha1/namespaces/{ns}-b/podprobemarkers/m", {"metadata": {"finalizers": None}}),
        *(
            step(f"DELETE namespaces/{each}", None, 403, {"message": f'namespaces "{each}" is forbidden: this namespace may not be deleted'})
            for each in ("default", "kube-system", "kube-public")
        ),
    ],
}  # fmt: skip

CUSTOM: Cases = {
    "unknown-fields-are-pruned-at-any-depth": [
        made(
            "podprobemarkers",
            {**probe(nonsense=[1], probe={"exec": {"command": ["true"]}, "x": 1}), "nonsense": 1},
            {"spec": marker()["spec"], "nonsense": ABSENT},
        )
    ],
    "the-schema-is-held": [
        step("POST podprobemarkers", {**marker(), "spec": None}, 422, {"message": Part("spec: Required value")}),
        *(
            step("POST podprobemarkers", body, 422, {"message": Part(field), "reason": "Invalid", "details.causes.0.message": Part(message)})
            for body, field, message in (
                (probe(name=None), "spec.probes[0].name", "Required value"),
                (probe(name=7), "spec.probes[0].name", 'Invalid value: "integer": spec.probes[0].name in body must be of type string: "integer"'),
                (marker(probes="all"), "spec.probes", 'Invalid value: "string": spec.probes in body must be of type array: "string"'),
                (probe(probe={"tcpSocket": {"port": [1]}}), "spec.probes[0].probe.tcpSocket.port", "must be of type integer"),
                (probe(name=""), "spec.probes[0].name", "should be at least 1 chars long"),
            )
        ),
        step("POST podprobemarkers", {**marker(), "kind": "Other"}, 422, {"fields": ["kind"]}),
    ],
    "patches-of-custom-resources": [
        made("podprobemarkers", marker()),
        step("MERGE podprobemarkers/m", {"spec": {"selector": {"matchLabels": {"app": "b"}}}}, 422, {"fields": ["spec.selector"], "message": Part("immutable")}),
        step("MERGE podprobemarkers/m", {"apiVersion": "apps.kruise.io/v9"}, 422, {"fields": ["apiVersion"]}),
        step("MERGE podprobemarkers/m", {"kind": "Pod"}, 422),
        step("MERGE podprobemarkers/m", {"metadata": "x"}, 422),
        step("STRATEGIC podprobemarkers/m", NOTHING, 415, {"reason": "UnsupportedMediaType"}),
        made("nodepodprobes", node_pod_probe()),
        step(f"MERGE nodepodprobes/{NPP}", {"spec": {"podProbes": [{"name": "p"}]}}, 422, {"message": Part("spec.podProbes[0].uid")}),
        step(f"MERGE nodepodprobes/{NPP}/status", {"status": "none"}, 422),
        step(f"MERGE nodepodprobes/{NPP}/status", {"status": {"podProbeStatuses": [{"name": "p"}]}}, 200),
        step(f"MERGE nodepodprobes/{NPP}/status", {"status": {"podProbeStatuses": None}}, 200, {"status": {}}),
    ],
}  # fmt: skip

STATUS: Cases = {
    "the-object-ignores-its-status": [
        made("pods", {**pod(), "status": {"phase": "Running"}}, {"status.phase": "Pending"}),
        step("MERGE pods/p", {"status": {"phase": "Running"}}, 200, {"status.phase": "Pending"}),
        made("podprobemarkers", {**marker(), "status": {"matchedPods": 3}}, {"status": ABSENT}),
        step("MERGE podprobemarkers/m", {"status": {"matchedPods": 3}}, 200, {"status": ABSENT}),
    ],
    "the-status-of-a-pod-takes-labels-but-neither-spec-nor-owners": [
        made("pods", pod(labels={"app": "a"})),
        step(
            "STRATEGIC pods/p/status",
            {
                "metadata": {
                    "labels": {"app": None, "x": "y"},
                    "annotations": {"a": "b"},
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}],
                },
                "spec": {"nodeName": "other"},
                "status": {"phase": "Running"},
            },
            200,
            {
                "metadata.labels": {"x": "y"},
                "metadata.annotations": {"a": "b"},
                "metadata.ownerReferences": ABSENT,
                "spec.nodeName": "{node}",
                "status.phase": "Running",
                "status.qosClass": "BestEffort",
            },
        ),
    ],
    "the-status-of-a-custom-resource-ignores-all-else": [
        made("podprobemarkers", marker()),
        step(
            "MERGE podprobemarkers/m/status",
            {
                "metadata": {"labels": {"x": "y"}, "finalizers": [HELD], "annotations": {"a": "b"}},
                "spec": {"probes": []},
                "status": {"observedGeneration": 1, "matchedPods": 3},
            },
            200,
            {
                "status": {"observedGeneration": 1, "matchedPods": 3},
                "spec": marker()["spec"],
                "metadata.generation": 1,
                "metadata.labels": ABSENT,
                "metadata.annotations": ABSENT,
                "metadata.finalizers": ABSENT,
            },
        ),
        step("GET podprobemarkers/m/status", None, 200, {"status.matchedPods": 3}),
        step(
            "PUT podprobemarkers/m/status",
            {**with_metadata(marker(), resourceVersion="{1:metadata.resourceVersion}"), "status": {"observedGeneration": 1, "matchedPods": 2}},
            200,
            {"status.matchedPods": 2},
        ),
    ],
    "a-generation-counts-the-spec-only": [
        made("pods", pod()),
        step("STRATEGIC pods/p/status", AB, 200, {"metadata.generation": 1}),
        made("podprobemarkers", marker()),
        step("MERGE podprobemarkers/m", labelled(a="b"), 200, {"metadata.generation": 1}),
        step("MERGE podprobemarkers/m", {"spec": probe(name="x")["spec"]}, 200, {"metadata.generation": 2}),
        step("MERGE podprobemarkers/m", {"metadata": {"generation": 77}}, 200, {"metadata.generation": 2}),
    ],
    "a-condition-of-a-pod-shows-absent-times-as-null": [
        made("pods", pod(node="")),
        step(
            "MERGE pods/p/status",
            conditions((HEALTHY, "True")),
            200,
            {"status.conditions": [{"type": HEALTHY, "status": "True", "lastProbeTime": None, "lastTransitionTime": None}]},
        ),
    ],
    "a-deletion-cost-is-an-integer": [
        made("pods", pod()),
        *(
            step(f"STRATEGIC pods/p{end}", {"metadata": {"annotations": {COST: each}}}, code)
            for end in ("", "/status")
            for each, code in {"-007": 200, "2147483647": 200, "": 422, "low": 422, "+1": 422, "1.0": 422, "2147483648": 422}.items()
        ),
    ],
}  # fmt: skip

PATCHES: Cases = {
    "conditions-merge-by-type-and-a-directive-deletes-one": [
        made("pods", pod(node="")),
        *(step("STRATEGIC pods/p/status", conditions(each)) for each in (("a/x", "True"), ("b/x", "True"))),
        step("STRATEGIC pods/p/status", conditions(("a/x", "False")), 200, {"status.conditions.2": ABSENT}),
        step(
            "STRATEGIC pods/p/status",
            {"status": {"conditions": [{"type": each, "$patch": "delete"} for each in ("b/x", "z/x")]}},
            200,
            {"status.conditions.0.type": "a/x", "status.conditions.0.status": "False", "status.conditions.1": ABSENT},
        ),
    ],
    "an-order-directive-orders": [
        made("pods", pod(node="")),
        step("MERGE pods/p/status", AB),
        step(
            "STRATEGIC pods/p/status",
            {"status": {"$setElementOrder/conditions": [{"type": "b/x"}, {"type": "a/x"}], "conditions": [{"type": "a/x", "status": "False"}]}},
            200,
            {"status.conditions.0.type": "b/x", "status.conditions.1.status": "False"},
        ),
    ],
    "finalizers-merge-and-leave-one-by-one": [
        made("pods", pod(finalizers=["a.b/c"])),
        step(
            "STRATEGIC pods/p",
            {"metadata": {"$setElementOrder/finalizers": ["a.b/c", "d.e/f"], "finalizers": ["d.e/f"]}},
        ),
        step("STRATEGIC pods/p", {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.b/c"]}}, 200, {"metadata.finalizers": ["d.e/f"]}),
        step("STRATEGIC pods/p", {"metadata": {"$deleteFromPrimitiveList/finalizers": ["d.e/f"]}}, 200, {"metadata.finalizers": ABSENT}),
    ],
    "a-merge-patch-replaces-lists-and-removes-by-null": [
        made("pods", pod(labels={"a": "1", "b": "2"})),
        step("MERGE pods/p", labelled(a=None, c="3"), 200, {"metadata.labels": {"b": "2", "c": "3"}}),
        step("MERGE pods/p/status", AB),
        step("MERGE pods/p/status", conditions(("b/x", "True")), 200, {"status.conditions.1": ABSENT}),
    ],
    "senseless-patches-are-refused": [
        made("pods", pod()),
        made("podprobemarkers", marker()),
        *(step(f"{each} pods/p", body, 400) for each in ("MERGE", "STRATEGIC") for body in (b"[]", b"{")),
        *(step("MERGE pods/p", {"metadata": each}, 400) for each in ({"name": "q"}, {"namespace": "q"}, None)),
        *(
            step(f"PATCH {kind}/never", NOTHING, 415, {"reason": "UnsupportedMediaType"}, content_type=form)
            for kind in ("pods", "podprobemarkers")
            for form in ("text/plain", "application/json")
        ),
        step("STRATEGIC pods/p/status", AB),
        step(
            "STRATEGIC pods/p/status",
            {"status": {"conditions": [{"status": "True"}]}},
            500,
            {"message": Part("does not contain declared merge key: type")},
        ),
    ],
}  # fmt: skip

DELETIONS: Cases = {
    "a-pod-on-a-node-waits-for-its-kubelet": [
        made("pods", pod()),
        step("DELETE pods/p", None, 200, {"metadata.deletionGracePeriodSeconds": 30, "metadata.generation": 2}),
        step("STRATEGIC pods/p/status", {"status": {"phase": "Running"}}, 200, {"status.phase": "Running"}),
        step(
            "MERGE pods/p",
            {"metadata": {"deletionTimestamp": None, "labels": {"a": "b"}}},
            200,
            {"metadata.deletionTimestamp": "{1:metadata.deletionTimestamp}"},
        ),
        step("DELETE pods/p", None, 200, {"kind": "Pod"}, gracePeriodSeconds=0),
        step("GET pods/p", None, 404),
    ],
    "pods-that-go-at-once": [
        made("pods", pod(node="")),
        step("DELETE pods/p", None, 200, {"kind": "Pod"}),
        step("GET pods/p", None, 404),
        made("pods", pod("q")),
        step("STRATEGIC pods/q/status", {"status": {"phase": "Succeeded"}}),
        step("DELETE pods/q"),
        step("GET pods/q", None, 404),
    ],
    "grace-can-be-ended-but-not-prolonged": [
        made("pods", pod()),
        step("DELETE pods/p", {"gracePeriodSeconds": 20}, 200, {"metadata.deletionGracePeriodSeconds": 20}, gracePeriodSeconds=3),
        step("DELETE pods/p", None, 200, {"metadata.resourceVersion": "{1:metadata.resourceVersion}"}, gracePeriodSeconds=40),
        step("GET pods/p", None, 200, {"metadata.deletionGracePeriodSeconds": 20}),
        step("DELETE pods/p", None, 200, gracePeriodSeconds=0),
        step("GET pods/p", None, 404),
    ],
    **{
        f"the-last-finalizer-ends-{kind}": [
            made(kind, with_metadata(body, name="m", finalizers=[HELD, "a.b/c"])),
            step(f"DELETE {kind}/m", None, 200, {"kind": body["kind"], "metadata.deletionGracePeriodSeconds": 0, "metadata.generation": 2}),
            step(f"DELETE {kind}/m", None, 200, {"metadata.resourceVersion": "{1:metadata.resourceVersion}"}),
            step(
                f"MERGE {kind}/m",
                {"metadata": {"finalizers": [HELD, "late/x"]}},
                422,
                {"fields": ["metadata.finalizers"], "message": Part('found new finalizers []string{"late/x"}')},
            ),
            step(f"MERGE {kind}/m", {"metadata": {"finalizers": [HELD]}}, 200, {"metadata.finalizers": [HELD]}),
            step(f"MERGE {kind}/m", {"metadata": {"finalizers": None}}, 200, {"metadata.finalizers": ABSENT}),
            step(f"GET {kind}/m", None, 404),
        ]
        for kind, body in (("pods", pod(node="")), ("podprobemarkers", marker()))
    },
    "a-custom-resource-goes-at-once-with-a-status": [
        made("podprobemarkers", marker()),
        *(
            step("DELETE podprobemarkers/m", {"preconditions": each}, 409, {"reason": "Conflict"})
            for each in ({"uid": "another"}, {"resourceVersion": "1"})
        ),
        step("DELETE podprobemarkers/m", b"{}", 415, content_type="text/plain"),
        step(
            "DELETE podprobemarkers/m",
            {"preconditions": {"uid": "{0:metadata.uid}"}},
            200,
            {
                "kind": "Status",
                "status": "Success",
                "details": {"name": "m", "group": "apps.kruise.io", "kind": "podprobemarkers", "uid": "{0:metadata.uid}"},
            },
        ),
    ],
}  # fmt: skip

MANAGED: Cases = {
    "the-creator-of-a-pod-manages-what-it-set-and-what-was-defaulted": [
        made("pods", with_metadata({**pod(), "spec": {
            **container(command=["x"], ports=[{"containerPort": 80, "name": "http"}], env=[{"name": "A", "value": "b"}])["spec"],
            "volumes": [{"name": "v", "emptyDir": {}}], "readinessGates": [{"conditionType": HEALTHY}],
        }}, labels={"app": "a"}, annotations={"x": "y"}, finalizers=["a.b/c"]), fieldManager="author"),
        step("MERGE pods/p", {"metadata": {"finalizers": None}}),
    ],
    "what-a-status-patch-writes-is-its-managers": [
        made("pods", pod(node="", labels={"app": "a"}), {"metadata.managedFields.0.manager": "contract"}),
        step("MERGE pods/p/status", {"metadata": {"labels": {LABEL: "1"}}, **conditions((HEALTHY, "True"))}, 200, {
            "metadata.managedFields.1.operation": "Update", "metadata.managedFields.1.apiVersion": "v1",
            "metadata.managedFields.1.fieldsType": "FieldsV1",
        }, fieldManager="prober"),
        step("STRATEGIC pods/p/status", conditions((HEALTHY, "False")), 200, {
            "metadata.managedFields.2.fieldsV1": {"f:status": {"f:conditions": {f'k:{{"type":"{HEALTHY}"}}': {"f:status": {}}}}},
            "metadata.managedFields.1.fieldsV1": {
                "f:metadata": {"f:labels": {f"f:{LABEL}": {}}},
                "f:status": {"f:conditions": {".": {}, f'k:{{"type":"{HEALTHY}"}}': {
                    ".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:type": {}}}},
            },
        }, fieldManager="user"),
    ],
    "a-field-stays-with-its-manager-until-another-changes-it": [
        made("pods", pod(labels={"a": "1"}), fieldManager="author"),
        step("STRATEGIC pods/p/status", labelled(**{LABEL: "1"}), fieldManager="prober"),
        step("MERGE pods/p", labelled(**{LABEL: "1"}), 200, {"metadata.managedFields.2": ABSENT}, fieldManager="user"),
        step("MERGE pods/p", labelled(**{LABEL: "2"}), fieldManager="user"),
        step("GET pods/p", None, 200, {
            "metadata.managedFields.1.manager": "user",
            "metadata.managedFields.1.fieldsV1": {"f:metadata": {"f:labels": {f"f:{LABEL}": {}}}}, "metadata.managedFields.2": ABSENT,
        }),
        step("MERGE pods/p", labelled(**{LABEL: None}), 200, {"metadata.managedFields.1": ABSENT}, fieldManager="admin"),
    ],
    "the-fields-of-a-marker": [
        made("podprobemarkers", marker(), fieldManager="author"),
        step("MERGE podprobemarkers/m", {"metadata": {"finalizers": [HELD]}, "spec": probe(name="x")["spec"]}, fieldManager="editor"),
        step("MERGE podprobemarkers/m/status", {"status": {"matchedPods": 1, "observedGeneration": 1}}, fieldManager="editor"),
        END,
    ],
    "managed-fields-that-were-reset-stay-away": [
        made("pods", pod(labels={"a": "b"})),
        step("MERGE pods/p/status", {"metadata": {"managedFields": [{}]}}, 200, {"metadata.managedFields.0.manager": "contract"}),
        step("MERGE pods/p", {"metadata": {"managedFields": [{}]}}, 200, {"metadata.managedFields": ABSENT}),
        step("MERGE pods/p", labelled(a="c"), 200, {"metadata.managedFields": ABSENT}),
    ],
    "a-replacement-without-managed-fields-keeps-them": [
        made("leases", lease({"holderIdentity": "a", "leaseDurationSeconds": 5}), fieldManager="a"),
        step("PUT leases/l", lease({"holderIdentity": "b", "leaseDurationSeconds": 5}, resourceVersion="{0:metadata.resourceVersion}"), fieldManager="b"),
    ],
    "an-event-is-managed-without-the-fields-that-are-always-there": [
        made("events", {
            "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "{ns}"}, "reason": "R",
            "count": 1, "source": {"component": "c"}, "lastTimestamp": "2026-01-02T03:04:05Z",
        }, fieldManager="author"),
    ],
}  # fmt: skip
"""Most of them say nothing of managedFields: the whole objects are compared below."""

ROWS: Final = {
    f"{table}-{name}": steps
    for table, cases in (
        ("objects", OBJECTS), ("custom", CUSTOM), ("status", STATUS), ("patches", PATCHES), ("deletions", DELETIONS), ("managed", MANAGED),
    )
    for name, steps in cases.items()
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
async def test_both_servers_respond_as_the_row_says(api: Api, row: str) -> None:
    await run(api, ROWS[row])


@pytest.mark.parametrize("target", ["real"], indirect=True)
@pytest.mark.parametrize("row", ROWS)
async def test_the_whole_objects_of_the_responses_are_the_same(
    both: tuple[Api, Api], row: str, real_minor_version: int
) -> None:
    """Failures are compared by what the row says: their sentences may be our own."""
    real, embedded = [
        [normalised(each.body, api) for each in await run(api, ROWS[row]) if each.code < 300]
        for api in both
    ]
    if real_minor_version < 33:  # pods have no generation
        for body in embedded:
            if body.get("kind") == "Pod":
                del body["metadata"]["generation"]
    differences = compared(real, embedded)
    assert not differences, "\n".join(["real != embedded", *differences])
