"""Creating, reading, replacing and patching objects, and being refused."""

import pytest
from support.contract_api import MERGE, STRATEGIC, Api, marker, node_pod_probe, pod


async def test_a_created_object_has_identity_and_version(api: Api) -> None:
    created = await api.create("pods", pod("p"))
    assert created.body["kind"] == "Pod"
    assert created.body["apiVersion"] == "v1"
    assert created.meta["namespace"] == api.namespace
    assert len(created.meta["uid"]) == 36
    assert int(created.revision) > 0
    assert created.meta["creationTimestamp"].endswith("Z")
    assert created.meta["generation"] == 1
    assert created.body["status"]["phase"] == "Pending"
    assert created.body["status"]["qosClass"] == "BestEffort"
    assert (await api.get(api.path("pods", "p"))).body == created.body


async def test_a_pod_gets_the_defaults_of_core_v1(api: Api) -> None:
    body = pod("p")
    body["spec"]["containers"][0] |= {
        "image": "example.com/x:1",
        "ports": [{"containerPort": 80}],
        "readinessProbe": {"httpGet": {"port": 80}},
        "livenessProbe": {"grpc": {"port": 1}, "periodSeconds": 7},
    }
    spec = (await api.create("pods", body)).body["spec"]
    container = spec["containers"][0]
    assert spec["restartPolicy"] == "Always"
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["serviceAccountName"] == "default"
    assert spec["securityContext"] == {}
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["resources"] == {}
    assert container["terminationMessagePolicy"] == "File"
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert container["readinessProbe"] == {
        "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert container["livenessProbe"]["periodSeconds"] == 7
    assert container["livenessProbe"]["grpc"] == {"port": 1, "service": ""}


async def test_versions_grow_across_kinds(api: Api) -> None:
    first = await api.create("pods", pod("a"))
    second = await api.create("podprobemarkers", marker())
    third = await api.create("pods", pod("b"))
    assert int(first.revision) < int(second.revision) < int(third.revision)


async def test_generated_names_are_unique(api: Api) -> None:
    body = pod()
    body["metadata"] = {"generateName": "web-"}
    names = {(await api.create("pods", body)).meta["name"] for _ in range(5)}
    assert len(names) == 5
    assert all(name.startswith("web-") and len(name) == 9 for name in names)


async def test_a_body_in_yaml_is_understood(api: Api) -> None:
    text = b"apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: by-yaml\n"
    created = await api.post(api.path("serviceaccounts"), text, content_type="application/yaml")
    assert created.code == 201
    assert created.meta["name"] == "by-yaml"


async def test_a_patch_that_changes_nothing_keeps_the_version(api: Api) -> None:
    created = await api.create("pods", pod("p", labels={"a": "b"}))
    path = api.path("pods", "p")
    for _ in range(2):
        patched = await api.merge(path, {"metadata": {"labels": {"a": "b"}}})
        assert patched.code == 200
        assert patched.revision == created.revision


async def test_a_replacement_with_a_stale_version_conflicts(api: Api) -> None:
    created = await api.create("pods", pod("p"))
    path = api.path("pods", "p")
    assert (await api.merge(path, {"metadata": {"labels": {"a": "1"}}})).code == 200
    refused = await api.put(path, created.body)
    assert (refused.code, refused.body["reason"]) == (409, "Conflict")
    assert refused.body["message"] == (
        'Operation cannot be fulfilled on pods "p": the object has been modified; please apply your '
        "changes to the latest version and try again"
    )


async def test_a_patch_with_a_stale_version_conflicts(api: Api) -> None:
    created = await api.create("podprobemarkers", marker())
    path = api.path("podprobemarkers", "m")
    assert (await api.merge(path, {"metadata": {"labels": {"a": "1"}}})).code == 200
    refused = await api.merge(path, {"metadata": {"resourceVersion": created.revision}})
    assert (refused.code, refused.body["reason"]) == (409, "Conflict")
    assert refused.body["details"] == {
        "name": "m",
        "group": "apps.kruise.io",
        "kind": "podprobemarkers",
    }


@pytest.mark.parametrize("subresource", ["", "/status"])
async def test_a_patch_for_another_uid_is_invalid(api: Api, subresource: str) -> None:
    await api.create("pods", pod("p"))
    patch = {"metadata": {"uid": "of-its-predecessor", "labels": {"a": "b"}}}
    refused = await api.strategic(api.path("pods", "p") + subresource, patch)
    assert (refused.code, refused.body["reason"]) == (422, "Invalid")
    assert refused.body["message"] == (
        'Pod "p" is invalid: metadata.uid: Invalid value: "of-its-predecessor": field is immutable'
    )
    assert refused.body["details"]["causes"][0]["field"] == "metadata.uid"
    assert "labels" not in (await api.get(api.path("pods", "p"))).meta


async def test_a_replacement_for_another_uid_conflicts(api: Api) -> None:
    body = (await api.create("pods", pod("p"))).body
    body["metadata"]["uid"] = "of-its-predecessor"
    refused = await api.put(api.path("pods", "p"), body)
    assert (refused.code, refused.body["reason"]) == (409, "Conflict")


@pytest.mark.parametrize(
    ("kind", "metadata", "code"),
    [
        pytest.param("leases", {"uid": "another"}, 409, id="uid"),
        pytest.param("leases", {"resourceVersion": "5"}, 201, id="version"),
        pytest.param("configmaps", {"uid": "another"}, 404, id="uid-of-another-kind"),
    ],
)
async def test_a_replacement_of_nothing_creates_a_lease_but_for_a_uid(
    api: Api, kind: str, metadata: dict[str, str], code: int
) -> None:
    body = {"metadata": {"name": "x", **metadata}}
    for query in ({"dryRun": "All"}, {}):
        assert (await api.put(api.path(kind, "x"), body, **query)).code == code


async def test_a_custom_resource_is_replaced_only_with_a_version(api: Api) -> None:
    await api.create("podprobemarkers", marker())
    refused = await api.put(api.path("podprobemarkers", "m"), marker())
    assert refused.code == 422
    assert refused.body["details"]["causes"][0]["field"] == "metadata.resourceVersion"


async def test_a_pod_may_be_replaced_without_a_version(api: Api) -> None:
    body = (await api.create("pods", pod("p"))).body
    del body["metadata"]["resourceVersion"]
    body["metadata"]["labels"] = {"a": "b"}
    replaced = await api.put(api.path("pods", "p"), body)
    assert replaced.code == 200
    assert replaced.meta["labels"] == {"a": "b"}


async def test_a_lease_may_be_created_by_replacing_it(api: Api) -> None:
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
    assert (await api.put(api.path("leases", "l"), lease)).code == 201


async def test_times_of_a_lease_keep_their_microseconds(api: Api) -> None:
    lease = {
        "metadata": {"name": "l"},
        "spec": {"holderIdentity": "me", "renewTime": "2026-01-02T03:04:05.678901Z"},
    }
    created = await api.create("leases", lease)
    assert created.body["spec"]["renewTime"] == "2026-01-02T03:04:05.678901Z"


async def test_zero_values_that_go_omits_are_not_stored(api: Api) -> None:
    body = pod("p")
    body["spec"] |= {"hostNetwork": False, "hostPID": False}
    body["spec"]["containers"][0] |= {
        "stdin": False,
        "ports": [{"containerPort": 80, "hostPort": 0}],
    }
    spec = (await api.create("pods", body)).body["spec"]
    assert not {"hostNetwork", "hostPID"} & spec.keys()
    (container,) = spec["containers"]
    assert "stdin" not in container
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]


async def test_a_dry_run_stores_nothing(api: Api) -> None:
    answer = await api.post(api.path("pods"), pod("p"), dryRun="All")
    assert answer.code == 201
    assert "resourceVersion" not in answer.body["metadata"]
    assert (await api.get(api.path("pods", "p"))).code == 404


@pytest.mark.parametrize("kind", ["pods", "configmaps", "podprobemarkers"])
async def test_a_dry_run_of_a_deletion_shows_what_it_would_change(api: Api, kind: str) -> None:
    body = {"pods": pod("x", node=""), "podprobemarkers": marker("x")}.get(kind, {"metadata": {}})
    body["metadata"] |= {"name": "x", "finalizers": ["example.com/hold"]}
    created = await api.create(kind, body)
    shown = await api.delete(api.path(kind, "x"), {"dryRun": ["All"]})
    assert (shown.code, shown.revision) == (200, created.revision)
    assert (shown.meta["deletionGracePeriodSeconds"], "deletionTimestamp" in shown.meta) == (
        0,
        True,
    )
    assert (await api.get(api.path(kind, "x"))).body == created.body
    await api.merge(api.path(kind, "x"), {"metadata": {"finalizers": None}})


@pytest.mark.parametrize(
    ("kind", "path", "code", "reason", "message"),
    [
        pytest.param("pods", "missing", 404, "NotFound", 'pods "missing" not found', id="pod"),
        pytest.param(
            "podprobemarkers",
            "missing",
            404,
            "NotFound",
            'podprobemarkers.apps.kruise.io "missing" not found',
            id="custom-resource",
        ),
    ],
)
async def test_what_is_not_there_is_not_found(
    api: Api, kind: str, path: str, code: int, reason: str, message: str
) -> None:
    for refused in (
        await api.get(api.path(kind, path)),
        await api.merge(api.path(kind, path), {}),
        await api.merge(api.path(kind, path) + "/status", {}),
        await api.delete(api.path(kind, path)),
    ):
        assert (refused.code, refused.body["reason"]) == (code, reason)
        assert refused.body["message"] == message
        assert refused.body["kind"] == "Status"
        assert refused.body["status"] == "Failure"


async def test_a_taken_name_already_exists(api: Api) -> None:
    await api.create("pods", pod("p"))
    refused = await api.post(api.path("pods"), pod("p"))
    assert (refused.code, refused.body["reason"]) == (409, "AlreadyExists")
    assert refused.body["message"] == 'pods "p" already exists'


async def test_nothing_is_created_in_a_namespace_that_is_not_there(api: Api) -> None:
    refused = await api.post(api.path("pods", namespace="nowhere"), pod("p"))
    assert refused.code == 404
    assert refused.body["message"] == 'namespaces "nowhere" not found'


@pytest.mark.parametrize(
    ("body", "part"),
    [
        pytest.param(b"{", "the object provided is unrecognized", id="no-json"),
        pytest.param(
            {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "p"}},
            'Node in version "v1" cannot be handled as a Pod',
            id="another-kind",
        ),
        pytest.param(
            {"metadata": {"name": "p", "namespace": "other"}},
            "the namespace of the provided object does not match",
            id="another-namespace",
        ),
        pytest.param(
            {"metadata": {"name": "p", "labels": {"a": 1}}},
            "json: cannot unmarshal number into",
            id="wrong-type",
        ),
    ],
)
async def test_a_senseless_body_is_a_bad_request(api: Api, body: object, part: str) -> None:
    refused = await api.post(api.path("pods"), body)
    assert (refused.code, refused.body["reason"]) == (400, "BadRequest")
    assert part in refused.body["message"]


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        pytest.param({}, "metadata.name", id="no-name"),
        pytest.param({"name": "Upper"}, "metadata.name", id="bad-name"),
        pytest.param({"name": "p", "labels": {"a b": "c"}}, "metadata.labels", id="bad-label-key"),
        pytest.param({"name": "p", "labels": {"a": "b c"}}, "metadata.labels", id="bad-label"),
        pytest.param({"name": "p", "labels": {"a": "x" * 64}}, "metadata.labels", id="long-label"),
        pytest.param(
            {"name": "p", "annotations": {"a b": "c"}}, "metadata.annotations", id="annotation"
        ),
        pytest.param(
            {"name": "p", "annotations": {"a": "x" * 262145}},
            "metadata.annotations",
            id="large-annotation",
        ),
        pytest.param(
            {
                "name": "p",
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": ""}],
            },
            "metadata.ownerReferences.uid",
            id="owner-without-uid",
        ),
    ],
)
async def test_bad_metadata_is_invalid(api: Api, metadata: dict[str, object], field: str) -> None:
    refused = await api.post(api.path("podprobemarkers"), {**marker(), "metadata": metadata})
    assert (refused.code, refused.body["reason"]) == (422, "Invalid"), refused
    unchecked = "<nil>"  # how CEL says that it did not come to its turn
    assert {each["field"] for each in refused.body["details"]["causes"]} - {unchecked} == {field}


async def test_a_pod_without_containers_is_invalid(api: Api) -> None:
    refused = await api.post(api.path("pods"), {"metadata": {"name": "p"}})
    assert refused.code == 422
    assert refused.body["message"] == 'Pod "p" is invalid: spec.containers: Required value'


@pytest.mark.parametrize("condition", ["two words", "example.com/", "a/b/c", ""])
async def test_a_readiness_gate_names_a_condition(api: Api, condition: str) -> None:
    body = pod("p")
    body["spec"]["readinessGates"] = [
        {"conditionType": "example.com/ready"},
        {"conditionType": condition},
    ]
    refused = await api.post(api.path("pods"), body)
    assert refused.code == 422
    fields = {each["field"] for each in refused.body["details"]["causes"]}
    assert fields == {"spec.readinessGates[1].conditionType"}


@pytest.mark.parametrize("namespace", ["elsewhere", ""])
async def test_an_event_stands_in_the_namespace_of_its_object(api: Api, namespace: str) -> None:
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": namespace},
    }
    refused = await api.post(api.path("events"), event)
    assert refused.code == 422
    fields = [each["field"] for each in refused.body["details"]["causes"]]
    assert fields == ["involvedObject.namespace"]
    event["involvedObject"]["namespace"] = api.namespace
    assert (await api.post(api.path("events"), event)).code == 201


async def test_of_a_running_pod_only_the_image_may_change(api: Api) -> None:
    await api.create("pods", pod("p"))
    path = api.path("pods", "p")
    image = {"spec": {"containers": [{"name": "c", "image": "j"}]}}
    changed = await api.strategic(path, image)
    assert changed.code == 200
    assert changed.meta["generation"] == 2
    for spec in ({"nodeName": "other"}, {"terminationGracePeriodSeconds": 3}):
        refused = await api.strategic(path, {"spec": spec})
        assert (refused.code, refused.causes) == (422, {("FieldValueForbidden", "spec")})


async def test_a_service_keeps_its_address(api: Api) -> None:
    await api.create("services", {"metadata": {"name": "s"}, "spec": {"clusterIP": "None"}})
    patched = await api.merge(api.path("services", "s"), {"spec": None})
    assert (patched.code, patched.body["spec"]["clusterIP"]) == (200, "None")


@pytest.mark.parametrize("form", [MERGE, STRATEGIC])
async def test_a_pod_cannot_lose_its_spec(api: Api, form: str) -> None:
    await api.create("pods", pod("p"))
    path = api.path("pods", "p")
    refused = await api.send("PATCH", path, {"spec": None}, content_type=form)
    assert refused.code == 422
    assert refused.causes == {
        ("FieldValueRequired", "spec.containers"),
        ("FieldValueForbidden", "spec.containers"),
    }


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        pytest.param("PUT", "/api/v1/namespaces/{ns}/pods", 405, id="put-on-a-collection"),
        pytest.param("POST", "/api/v1/namespaces/{ns}/pods/p", 405, id="post-on-an-object"),
        pytest.param("POST", "/api/v1/pods", 405, id="post-without-namespace"),
        pytest.param("GET", "/api/v1/namespaces/{ns}/things", 404, id="no-such-resource"),
        pytest.param("GET", "/api/v1/namespaces/{ns}/pods/p/things", 404, id="no-such-subresource"),
        pytest.param("GET", "/apis/none.example.com/v1/things", 404, id="no-such-group"),
    ],
)
async def test_paths_and_methods_that_do_not_exist(
    api: Api, method: str, path: str, code: int
) -> None:
    refused = await api.send(method, path.format(ns=api.namespace), {} if method != "GET" else None)
    assert refused.code == code


@pytest.mark.parametrize(
    ("resource", "content_type"),
    [
        pytest.param("pods", "text/plain", id="text"),
        pytest.param("pods", "application/json", id="plain-json"),
        pytest.param(
            "podprobemarkers",
            "application/strategic-merge-patch+json",
            id="strategic-merge-on-a-custom-resource",
        ),
    ],
)
async def test_patches_of_unknown_form_are_refused(
    api: Api, resource: str, content_type: str
) -> None:
    body = pod("m") if resource == "pods" else marker("m")
    await api.create(resource, body)
    refused = await api.send("PATCH", api.path(resource, "m"), {}, content_type=content_type)
    assert (refused.code, refused.body["reason"]) == (415, "UnsupportedMediaType")


async def test_an_unknown_media_type_is_not_acceptable(api: Api) -> None:
    refused = await api.get(api.path("pods"), accept="image/png")
    assert refused.code == 406


async def test_cluster_scoped_objects_have_no_namespace(api: Api) -> None:
    name = f"n-{api.unique}"
    body = node_pod_probe(name)
    body["metadata"]["labels"] = {"contract": api.unique}
    created = await api.post(api.path("nodepodprobes"), body)
    assert created.code == 201
    assert "namespace" not in created.meta


async def test_an_object_can_be_too_large_for_storage_and_a_request_for_the_server(
    api: Api,
) -> None:
    name = f"n-{api.unique}"
    words = [{"name": "m#p", "containerName": "c", "probe": {"exec": {"command": ["x" * 30_000]}}}]
    pods = [
        {"name": "p", "namespace": "ns", "uid": f"u{number}", "IP": "", "probes": words}
        for number in range(60)
    ]
    path = api.path("nodepodprobes")
    refused = await api.post(path, node_pod_probe(name, spec={"podProbes": pods}))
    assert (refused.code, refused.body["message"]) == (500, "etcdserver: request is too large")
    assert (await api.get(f"{path}/{name}")).code == 404
    refused = await api.post(path, node_pod_probe(name, nonsense="x" * (3 << 20)))
    assert (refused.code, refused.body["reason"]) == (413, "RequestEntityTooLarge")


@pytest.mark.parametrize(
    ("validation", "code"),
    [pytest.param("Strict", 400, id="strict"), pytest.param("Warn", 201, id="warn")],
)
@pytest.mark.parametrize("resource", ["pods", "podprobemarkers"])
async def test_unknown_fields_are_told(api: Api, resource: str, validation: str, code: int) -> None:
    body = pod("m") if resource == "pods" else marker("m")
    body["spec"]["nonsense"] = 1
    answer = await api.post(api.path(resource), body, fieldValidation=validation)
    assert answer.code == code
    if code == 400:
        assert 'strict decoding error: unknown field "spec.nonsense"' in answer.body["message"]
    else:
        assert 'unknown field \\"spec.nonsense\\"' in answer.headers["Warning"]
        assert "nonsense" not in answer.body["spec"]


async def test_data_of_config_maps_and_secrets_is_stored(api: Api) -> None:
    data = {"metadata": {"name": "a"}, "data": {"a": "b"}}
    assert (await api.create("configmaps", data)).body["data"] == {"a": "b"}
    secret = {"metadata": {"name": "a"}, "stringData": {"a": "b"}}
    stored = await api.create("secrets", secret)
    assert (stored.body["data"], stored.body["type"]) == ({"a": "Yg=="}, "Opaque")
    assert "stringData" not in stored.body


async def test_a_service_gets_its_defaults(api: Api) -> None:
    body = {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}
    spec = (await api.create("services", body)).body["spec"]
    assert spec["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert (spec["type"], spec["sessionAffinity"]) == ("ClusterIP", "None")


async def test_the_embedded_server_says_which_kinds_it_has(api: Api) -> None:
    answer = await api.get("/apis/example.com/v9/deployments")
    assert (answer.code, api.real or "configmaps" in answer.body["message"]) == (404, True)
