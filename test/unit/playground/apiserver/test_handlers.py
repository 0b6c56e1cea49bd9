"""The handlers without HTTP: any body is answered or refused, never broken on; subresources; counters."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kruise_probe.manifests.crds import all_crds
from kruise_probe_playground.apiserver.builtin import builtin_kinds
from kruise_probe_playground.apiserver.custom import custom_kind
from kruise_probe_playground.apiserver.failures import Failure
from kruise_probe_playground.apiserver.handlers import (
    Call,
    VerbHandlers,
    VerbResponse,
    check_route,
    verb_of,
)
from kruise_probe_playground.apiserver.registry import Registry
from kruise_probe_playground.apiserver.requests import parse_path
from kruise_probe_playground.apiserver.schema import Json
from kruise_probe_playground.marker_rules import marker_problems

EPOCH = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PODS = "/api/v1/namespaces/ns/pods"
NODES = "/api/v1/nodes"
MARKERS = "/apis/apps.kruise.io/v1alpha1/namespaces/ns/podprobemarkers"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PROTOBUF = "application/vnd.kubernetes.protobuf"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class Server:
    """Handlers over a registry, asked as the frontend asks them."""

    def __init__(self) -> None:
        custom = (
            custom_kind(crd, marker_problems if "Marker" in crd["spec"]["names"]["kind"] else None)
            for crd in all_crds()
        )
        self.registry = Registry([*builtin_kinds(), *custom], now=lambda: EPOCH)
        self.handlers = VerbHandlers(self.registry)
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "ns"}})

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        form: str = "application/json",
        accept: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> VerbResponse:
        parsed = parse_path(path)
        assert parsed is not None
        kind = self.registry.kind_at(parsed.group, parsed.version, parsed.plural)
        assert kind is not None
        verb = verb_of(method, parsed, query or {})
        check_route(kind, parsed, verb)
        headers = {"content-type": form, "accept": accept, "user-agent": "test/1"}
        data = (
            body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        )
        return self.handlers.respond(Call(verb, kind, parsed, query or {}, headers, data))

    def body(self, *args: Any, **more: Any) -> Json:
        decoded: Json = msgspec.json.decode(self.ask(*args, **more).body)
        return decoded


@pytest.fixture
def server() -> Server:
    return Server()


def pod(name: str = "p", node: str = "") -> Json:
    spec: Json = {"containers": [{"name": "c", "image": "i"}]}
    if node:
        spec["nodeName"] = node
    return {"metadata": {"name": name}, "spec": spec}


def marker() -> Json:
    probe = {
        "name": "a",
        "containerName": "c",
        "probe": {"exec": {"command": ["true"]}},
        "podConditionType": "x.io/a",
    }
    return {
        "apiVersion": "apps.kruise.io/v1alpha1",
        "kind": "PodProbeMarker",
        "metadata": {"name": "m"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "probes": [probe]},
    }


def refusal(server: Server, *args: Any, **more: Any) -> Failure:
    with pytest.raises(Failure) as refused:
        server.ask(*args, **more)
    return refused.value


def test_pod_is_bound_once(server: Server) -> None:
    server.ask("POST", PODS, pod())
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    assert server.ask("POST", f"{PODS}/p/binding", binding).code == 201
    bound = server.body("GET", f"{PODS}/p")
    assert bound["spec"]["nodeName"] == "n"
    assert bound["metadata"]["generation"] == 2
    assert refusal(server, "POST", f"{PODS}/p/binding", binding).code == 409


def test_finalized_namespace_is_deleted(server: Server) -> None:
    path = "/api/v1/namespaces/ns"
    server.ask(
        "PUT", f"{path}/finalize", {"metadata": {"name": "ns"}, "spec": {"finalizers": ["x"]}}
    )
    assert server.body("GET", path)["spec"]["finalizers"] == ["x"]
    assert server.body("DELETE", path)["status"]["phase"] == "Terminating"
    server.ask("PUT", f"{path}/finalize", {"metadata": {"name": "ns"}, "spec": {}})
    assert refusal(server, "GET", path).code == 404


@pytest.mark.parametrize(
    ("query", "code"),
    [
        pytest.param({"dryRun": "Some"}, 422, id="dry-run"),
        pytest.param({"fieldManager": "x" * 129}, 422, id="long-field-manager"),
    ],
)
def test_invalid_options_are_rejected(server: Server, query: dict[str, str], code: int) -> None:
    assert refusal(server, "POST", PODS, pod(), query=query).code == code


@pytest.mark.parametrize("grace", ["x", [1]])
def test_invalid_delete_options_are_rejected(server: Server, grace: object) -> None:
    server.ask("POST", PODS, pod(node="n"))
    assert refusal(server, "DELETE", f"{PODS}/p", {"gracePeriodSeconds": grace}).code == 400
    assert refusal(server, "DELETE", f"{PODS}/p", b"{").code == 400
    assert refusal(server, "DELETE", f"{PODS}/p", []).code == 400


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"{}", id="json"),
        pytest.param(b"k8s\x00\x12\x01\x0a", id="cut-off"),
        pytest.param(b"k8s\x00\x12\x02\x20\x01", id="wrong-type"),
        pytest.param(b"k8s\x00\x0a\x05\x12\x03Pod", id="another-kind"),
    ],
)
def test_invalid_protobuf_delete_options_are_rejected(server: Server, body: bytes) -> None:
    server.ask("POST", PODS, pod(node="n"))
    assert refusal(server, "DELETE", f"{PODS}/p", body, form=PROTOBUF).code == 400
    assert "deletionTimestamp" not in server.body("GET", f"{PODS}/p")["metadata"]


def test_protobuf_of_other_kinds_is_rejected(server: Server) -> None:
    assert refusal(server, "POST", PODS, b"k8s\x00", form=PROTOBUF).code == 415


@pytest.mark.parametrize("body", [b"{", [], {}, {"target": 5}])
def test_invalid_bindings_are_rejected(server: Server, body: object) -> None:
    server.ask("POST", PODS, pod())
    assert refusal(server, "POST", f"{PODS}/p/binding", body).code == 400


@pytest.mark.parametrize(
    ("form", "alternative"),
    [
        pytest.param("application/apply-patch+yaml", "without --server-side", id="apply"),
        pytest.param("application/json-patch+json", "kubectl patch --type=merge", id="json-patch"),
    ],
)
def test_patch_types_outside_the_subset_name_the_alternative(
    server: Server, form: str, alternative: str
) -> None:
    server.ask("POST", PODS, pod())
    for name in ("p", "new"):
        path = f"{PODS}/{name}"
        refused = refusal(server, "PATCH", path, {}, form=form)
        assert refused.code == 415
        assert alternative in str(refused)


def test_dry_run_deletes_nothing(server: Server) -> None:
    server.ask("POST", PODS, pod())
    server.ask("DELETE", f"{PODS}/p", query={"dryRun": "All"})
    assert server.ask("GET", f"{PODS}/p").code == 200


def test_qos_class_follows_the_resources(server: Server) -> None:
    limits = {"cpu": "1", "memory": "1Gi"}
    for name, resources, expected in (
        ("none", {}, "BestEffort"),
        ("some", {"requests": {"cpu": "1"}}, "Burstable"),
        ("all", {"limits": limits}, "Guaranteed"),
    ):
        body = pod(name)
        body["spec"]["containers"][0]["resources"] = resources
        assert server.body("POST", PODS, body)["status"]["qosClass"] == expected


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**40) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "metadata", "spec", "status", "labels", "annotations", "name", "finalizers",
                    "ownerReferences", "managedFields", "fieldsV1", "f:spec", "containers", "ports",
                    "conditions", "type", "$patch", "$setElementOrder/conditions", "$retainKeys",
                    "$deleteFromPrimitiveList/finalizers", "uid", "resourceVersion", "probes",
                    "selector", "probe", "readinessProbe", "env", "valueFrom", "fieldRef", "limits",
                    "resources", "volumes", "generateName", "deletionTimestamp", "generation",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)  # fmt: skip

objects = st.dictionaries(
    st.sampled_from(["metadata", "spec", "status", "kind", "apiVersion"]), json_values
)
_shared = Server()
_shared.ask("POST", PODS, pod())
_shared.ask("POST", MARKERS, marker())


def answered_or_refused(*args: Any, **more: Any) -> None:
    try:
        _shared.ask(*args, **more, query={"dryRun": "All"})
    except Failure as failure:
        msgspec.json.encode(failure.status)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    objects | json_values, st.sampled_from([PODS, MARKERS, NODES, "/api/v1/namespaces/ns/events"])
)
def test_any_created_body_gets_a_response_or_a_failure(body: Any, path: str) -> None:
    if isinstance(body, dict) and isinstance(body.get("metadata"), dict):
        body["metadata"].setdefault("name", "x")
    if isinstance(body, dict) and path == MARKERS:
        body |= {"kind": "PodProbeMarker", "apiVersion": "apps.kruise.io/v1alpha1"}
    answered_or_refused("POST", path, body)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    objects,
    st.sampled_from([MERGE, STRATEGIC]),
    st.sampled_from([f"{PODS}/p", f"{PODS}/p/status", f"{MARKERS}/m", f"{MARKERS}/m/status"]),
)
def test_any_patch_gets_a_response_or_a_failure(body: Any, form: str, path: str) -> None:
    answered_or_refused("PATCH", path, body, form=form)
