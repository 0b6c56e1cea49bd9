"""What an API server refuses, warns of and brings into another form, each on both servers."""

import json
from typing import Any

import pytest
from support.contract_api import PROTOBUF, Api, Json, marker, pod
from support.programs import until

OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}


def config_map(name: str = "c", **metadata: Any) -> Json:
    return {"metadata": {"name": name, **metadata}, "data": {"a": "b"}}


def container(**fields: Any) -> Json:
    body = pod("p")
    body["spec"]["containers"][0] |= fields
    return body


def lease(**spec: Any) -> Json:
    return {"metadata": {"name": "l"}, "spec": spec}


PROBE = {"exec": {"command": ["x"]}}
INVALID = {
    "two-controllers": (
        "configmaps",
        config_map(
            ownerReferences=[
                {**OWNER, "controller": True},
                {**OWNER, "uid": "v", "controller": True},
            ]
        ),
        "metadata.ownerReferences",
    ),
    "an-event-as-owner": (
        "configmaps",
        config_map(ownerReferences=[{**OWNER, "kind": "Event"}]),
        "metadata.ownerReferences",
    ),
    "an-owner-of-a-malformed-version": (
        "configmaps",
        config_map(ownerReferences=[{**OWNER, "apiVersion": "a/b/c"}]),
        "metadata.ownerReferences.apiVersion",
    ),
    "a-finalizer-without-a-domain": (
        "configmaps",
        config_map(finalizers=["x"]),
        "metadata.finalizers[0]",
    ),
    "a-bad-finalizer": ("configmaps", config_map(finalizers=["a b"]), "metadata.finalizers"),
    "two-policies": (
        "configmaps",
        config_map(finalizers=["orphan", "foregroundDeletion"]),
        "metadata.finalizers",
    ),
    "a-key-with-a-space": (
        "configmaps",
        {"metadata": {"name": "c"}, "data": {"a b": ""}},
        "data[a b]",
    ),
    "a-tls-secret-without-keys": (
        "secrets",
        {"metadata": {"name": "s"}, "type": "kubernetes.io/tls"},
        "data[tls.crt]",
    ),
    "a-service-without-ports": ("services", {"metadata": {"name": "s"}, "spec": {}}, "spec.ports"),
    "requests-above-limits": (
        "pods",
        container(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "1500m"}}),
        "spec.containers[0].resources.requests",
    ),
    "a-negative-limit": (
        "pods",
        container(resources={"limits": {"cpu": "-1"}}),
        "spec.containers[0].resources.limits[cpu]",
    ),
    "a-negative-period": (
        "pods",
        container(livenessProbe={**PROBE, "periodSeconds": -1}),
        "spec.containers[0].livenessProbe.periodSeconds",
    ),
    "a-liveness-probe-with-two-successes": (
        "pods",
        container(livenessProbe={**PROBE, "successThreshold": 2}),
        "spec.containers[0].livenessProbe.successThreshold",
    ),
    "a-probe-without-a-handler": (
        "pods",
        container(readinessProbe={"periodSeconds": 1}),
        "spec.containers[0].readinessProbe",
    ),
    "a-probe-with-two-handlers": (
        "pods",
        container(readinessProbe={**PROBE, "tcpSocket": {"port": 1}}),
        "spec.containers[0].readinessProbe.tcpSocket",
    ),
    "an-unknown-policy": (
        "pods",
        container(imagePullPolicy="Sometimes"),
        "spec.containers[0].imagePullPolicy",
    ),
    "a-mount-of-no-volume": (
        "pods",
        container(volumeMounts=[{"name": "v", "mountPath": "/x"}]),
        "spec.containers[0].volumeMounts[0].name",
    ),
    "a-lease-of-no-duration": (
        "leases",
        lease(leaseDurationSeconds=0),
        "spec.leaseDurationSeconds",
    ),
}


@pytest.mark.parametrize("case", INVALID)
async def test_invalid_objects_are_refused_at_the_field(api: Api, case: str) -> None:
    resource, body, field = INVALID[case]
    refused = await api.post(api.path(resource), body)
    assert refused.code == 422, refused
    assert field in {each["field"] for each in refused.body["details"]["causes"]}


async def test_two_containers_without_names_are_duplicates_too(api: Api) -> None:
    body = pod("p")
    body["spec"]["containers"] = [{"name": "", "image": "i"}] * 2
    refused = await api.post(api.path("pods"), body)
    assert refused.causes == {
        ("FieldValueRequired", "spec.containers[0].name"),
        ("FieldValueRequired", "spec.containers[1].name"),
        ("FieldValueDuplicate", "spec.containers[1].name"),
    }


UNDECODABLE = {
    "a-lease-time-without-microseconds": ("leases", lease(renewTime="2026-01-02T03:04:05Z")),
    "a-time-that-is-none": ("leases", lease(renewTime="x")),
    "a-quantity-that-is-none": ("pods", container(resources={"limits": {"cpu": "x"}})),
    "data-that-is-no-base64": ("secrets", {"metadata": {"name": "s"}, "data": {"a": "!"}}),
}


@pytest.mark.parametrize("case", UNDECODABLE)
async def test_undecodable_values_are_bad_requests(api: Api, case: str) -> None:
    resource, body = UNDECODABLE[case]
    refused = await api.post(api.path(resource), body)
    assert (refused.code, refused.body["reason"]) == (400, "BadRequest"), refused


@pytest.mark.parametrize("quantity", ["1Ei", "1E", "1e3", "500m", "0"])
async def test_a_quantity_may_have_any_suffix(api: Api, quantity: str) -> None:
    created = await api.create("pods", container(resources={"limits": {"memory": quantity}}))
    limits = created.body["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"memory": quantity}


async def test_times_are_stored_in_utc_and_empty_pointers_are_kept(api: Api) -> None:
    body = lease(acquireTime="2026-01-02T03:04:05.123456+02:00", holderIdentity="")
    spec = (await api.create("leases", body)).body["spec"]
    assert spec == {"acquireTime": "2026-01-02T01:04:05.123456Z", "holderIdentity": ""}


DOUBLED = b'{"metadata":{"name":"d"},"data":{"a":"1","a":"2"}}'


async def test_doubled_keys_are_refused_if_strict_and_warned_of_otherwise(api: Api) -> None:
    refused = await api.post(api.path("configmaps"), DOUBLED, fieldValidation="Strict")
    assert (refused.code, 'duplicate field "data.a"' in refused.body["message"]) == (400, True)
    accepted = await api.post(api.path("configmaps"), DOUBLED)
    assert (accepted.code, accepted.body["data"]) == (201, {"a": "2"})
    assert accepted.headers["Warning"] == '299 - "duplicate field \\"data.a\\""'


@pytest.mark.parametrize("query", [{"fieldValidation": "Sometimes"}, {"dryRun": "Some"}])
async def test_unknown_options_are_invalid(api: Api, query: dict[str, str]) -> None:
    refused = await api.post(api.path("configmaps"), config_map(), **query)
    assert (refused.code, refused.body["details"]["kind"]) == (422, "CreateOptions")


WARNINGS = {
    "doubled-owners": (
        "configmaps",
        config_map(ownerReferences=[OWNER, OWNER]),
        "ownerReferences contains duplicate",
    ),
    "doubled-variables": (
        "pods",
        container(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
        "hides previous definition",
    ),
    "a-custom-finalizer-without-a-domain": (
        "podprobemarkers",
        {**marker(), "metadata": {"name": "m", "finalizers": ["x"]}},
        "prefer a domain-qualified finalizer name",
    ),
}


@pytest.mark.parametrize("case", WARNINGS)
async def test_accepted_objects_come_with_warnings(api: Api, case: str) -> None:
    resource, body, warning = WARNINGS[case]
    created = await api.post(api.path(resource), body)
    assert created.code == 201, created
    assert warning in ", ".join(created.headers.getall("Warning", []))
    await api.merge(
        api.path(resource, body["metadata"]["name"]), {"metadata": {"finalizers": None}}
    )


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"kind": "Pod", "apiVersion": "v1"}, 400),
        ({"kind": "DeleteOptions", "apiVersion": "v1"}, 200),
        ({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}, 200),
        ({"apiVersion": "v1"}, 200),
    ],
)
async def test_the_body_of_a_deletion_is_of_delete_options(api: Api, body: Json, code: int) -> None:
    await api.create("configmaps", config_map())
    assert (await api.delete(api.path("configmaps", "c"), body)).code == code


async def test_immutable_data_cannot_change(api: Api) -> None:
    await api.create("configmaps", {**config_map(), "immutable": True})
    refused = await api.merge(api.path("configmaps", "c"), {"data": {"a": "c"}})
    assert (refused.code, refused.body["details"]["causes"][0]["field"]) == (422, "data")
    labelled = await api.merge(api.path("configmaps", "c"), {"metadata": {"labels": {"a": "b"}}})
    assert labelled.code == 200
    empty = await api.merge(api.path("configmaps", "c"), {"binaryData": {}})
    assert (empty.code, empty.causes) == (422, {("FieldValueForbidden", "binaryData")})
    await api.create("configmaps", {"metadata": {"name": "empty"}, "immutable": True})
    assert (await api.merge(api.path("configmaps", "empty"), {"data": {}})).code == 200


async def test_a_namespace_gets_its_default_service_account(api: Api) -> None:
    other = f"{api.namespace}-other"
    await api.post(api.path("namespaces"), {"metadata": {"name": other}})
    path = api.path("serviceaccounts", "default", namespace=other)

    async def exists() -> bool:
        return (await api.get(path)).code == 200

    await until("the ServiceAccount default exists", exists)
    await api.delete(api.path("namespaces", other))


def text(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value


def protobuf(kind: bytes, message: bytes) -> bytes:
    return b"k8s\0" + text(1, text(1, b"v1") + text(2, kind)) + text(2, message)


async def test_protobuf_is_decoded_completely(api: Api) -> None:
    entry = text(1, b"k") + text(2, b"v")
    metadata = text(1, b"c") + text(14, b"a.b/c")
    body = protobuf(
        b"ConfigMap", text(1, metadata) + text(2, entry) + text(3, text(1, b"b") + text(2, b"v"))
    )
    created = await api.post(api.path("configmaps"), body, content_type=PROTOBUF)
    assert created.code == 201, created
    assert created.meta["finalizers"] == ["a.b/c"]
    assert (created.body["data"], created.body["binaryData"]) == ({"k": "v"}, {"b": "dg=="})
    await api.merge(api.path("configmaps", "c"), {"metadata": {"finalizers": None}})


async def test_protobuf_that_cannot_be_decoded_completely_is_refused(api: Api) -> None:
    """A real server accepts it; the embedded one says what the client can do instead of losing fields."""
    owner = text(1, b"Pod") + text(3, b"p") + text(4, b"u") + text(5, b"v1")
    body = protobuf(b"ServiceAccount", text(1, text(1, b"s") + text(13, owner)))
    answer = await api.post(api.path("serviceaccounts"), body, content_type=PROTOBUF)
    if api.real:
        assert (answer.code, len(answer.meta["ownerReferences"])) == (201, 1)
    else:
        assert answer.code == 415
        assert (
            "send application/json: in Go, rest.Config.ContentType"
            in json.loads(answer.text)["message"]
        )


@pytest.mark.parametrize("name", ["", "c"])
async def test_a_head_request_is_not_allowed(api: Api, name: str) -> None:
    await api.create("configmaps", {"metadata": {"name": "c"}})
    assert (await api.send("HEAD", api.path("configmaps", name))).code == 405
