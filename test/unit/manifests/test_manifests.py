"""The manifests: fields of Kruise's CRDs, and every permission."""

from itertools import product

import pytest
from support.cases import cases
from support.wire import Json

from kruise_probe.api.names import daemon_lease_name
from kruise_probe.manifests import objects_in
from kruise_probe.manifests.crds import marker_crd, node_pod_probe_crd
from kruise_probe.manifests.install import Install, default_install, webhook

READ = "get list watch"


def of_kind(objects: list[Json], *kinds: str) -> list[Json]:
    return [found for found in objects if found["kind"] in kinds]


def rights(role: Json) -> dict[str, str]:
    """The verbs of each resource, sorted."""
    verbs: dict[str, set[str]] = {}
    for rule in role["rules"]:
        for resource in rule["resources"]:
            verbs.setdefault(resource, set()).update(rule["verbs"])
    return {resource: " ".join(sorted(allowed)) for resource, allowed in verbs.items()}


def test_the_manager_has_exactly_these_rules_and_none_on_secrets() -> None:
    objects = objects_in("manager_rbac", "kruise-system")
    (cluster_role,) = of_kind(objects, "ClusterRole")
    (role,) = of_kind(objects, "Role")

    assert rights(cluster_role) == {
        "pods": READ,
        "nodes": READ,
        "pods/status": "patch",
        "events": "create patch",
        "podprobemarkers": "get list patch watch",
        "podprobemarkers/status": "patch",
        "nodepodprobes": "create delete get list patch watch",
        "customresourcedefinitions": "get",
    }
    assert rights(role) == {"leases": "create get list patch watch"}


def test_own_node_reads_replace_the_rules_that_read_all_nodes() -> None:
    documents = default_install(Install(own_node_reads=True))
    roles = {role["metadata"]["name"]: role for role in of_kind(documents, "ClusterRole")}
    of_daemon = [rights(role) for name, role in roles.items() if "kruise-probe-daemon" in name]
    on = "impersonate-on:associated-node"

    assert of_daemon == [
        {"events": "create patch"},
        {
            "nodes": "impersonate:associated-node",
            "nodepodprobes": f"{on}:get {on}:list {on}:watch",
            "nodepodprobes/status": "update",
        },
    ]
    assert rights(roles["kruise-probe-manager-own-reads"]) == {
        "clusterroles": "create list watch",
        "clusterrolebindings": "create list watch",
    }


def test_metrics_secure_adds_two_rules_and_a_role_for_readers() -> None:
    auth, binding, reader = objects_in("metrics_rbac", "kruise-system")

    assert auth["kind"] == "ClusterRole"
    assert rights(auth) == {"tokenreviews": "create", "subjectaccessreviews": "create"}
    assert binding["roleRef"]["name"] == auth["metadata"]["name"]
    subjects = [subject["name"] for subject in binding["subjects"]]
    assert subjects == ["kruise-probe-manager", "kruise-probe-daemon"]
    assert reader["metadata"]["name"] == "kruise-probe-metrics-reader"
    assert reader["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]


@pytest.mark.parametrize("secure", [True, False])
def test_the_roles_for_metrics_are_installed_with_the_flag_only(secure: bool) -> None:
    documents = default_install(Install(metrics_secure=secure))
    names = {document["metadata"]["name"] for document in documents}

    assert ("kruise-probe-metrics-auth" in names) is secure
    assert ("kruise-probe-metrics-reader" in names) is secure
    for workload in of_kind(documents, "Deployment", "DaemonSet"):
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        assert ("--metrics-secure" in container["args"]) is secure
        shares_the_port = workload["kind"] == "DaemonSet"
        for name in ("livenessProbe", "readinessProbe"):
            scheme = container[name]["httpGet"].get("scheme")
            assert (scheme == "HTTPS") is (secure and shares_the_port)


def schema_at(crd: Json, path: str = "") -> Json:
    schema: Json = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in path.split():
        schema = schema["properties"][name]
        schema = schema.get("items", schema)
    return schema


@cases(
    "crd path required",
    marker_spec=(marker_crd(), "spec", ["probes", "selector"]),
    marker_probe=(marker_crd(), "spec probes", ["containerName", "name", "probe"]),
    marker_policy=(marker_crd(), "spec probes markerPolicy", ["state"]),
    node_entry=(node_pod_probe_crd(), "spec podProbes", ["IP", "name", "namespace", "uid"]),
)
def test_required_fields_are_those_of_kruise(crd: Json, path: str, required: list[str]) -> None:
    assert schema_at(crd, path)["required"] == required


def check_texts(schema: Json, path: str = "") -> None:
    for name, field in schema.get("properties", {}).items():
        if name != "metadata":  # the API server describes metadata
            assert "description" in field, f"{path}.{name}"
        check_texts(field.get("items", field), f"{path}.{name}")


@cases("crd", ppm=marker_crd(), npp=node_pod_probe_crd())
def test_kubectl_explain_has_a_text_for_each_field(crd: Json) -> None:
    check_texts(schema_at(crd))


def test_http_get_has_the_defaults_of_core_v1_and_numbers_have_none() -> None:
    probe = schema_at(marker_crd(), "spec probes probe")
    http_get = schema_at(marker_crd(), "spec probes probe httpGet")

    assert http_get["properties"]["path"]["default"] == "/"
    assert http_get["properties"]["scheme"]["default"] == "HTTP"
    assert not any("default" in field for field in probe["properties"].values())


def test_a_node_called_manager_has_a_lease_other_than_the_managers() -> None:
    policy, _ = objects_in("own_node_policy", "kruise-system")
    rules = [validation["expression"] for validation in policy["spec"]["validations"]]
    lease = (
        "variables.node == 'manager' ? 'kruise-probe--manager' : 'kruise-probe-' + variables.node"
    )

    assert daemon_lease_name("manager") == "kruise-probe--manager"
    assert f"request.resource.resource != 'leases' || request.name == ({lease})" in rules


def test_the_finalizer_of_a_marker_without_a_spec_skips_the_webhook() -> None:
    """Kruise's CRD allows no spec, and CEL fails on an absent field."""
    (validating,) = of_kind(webhook(Install()), "ValidatingWebhookConfiguration")
    (markers,) = validating["webhooks"]
    (condition,) = markers["matchConditions"]
    assert condition["expression"] == (
        "!(request.operation != 'CREATE' && has(object.spec) == has(oldObject.spec) && "
        "(!has(object.spec) || object.spec == oldObject.spec))"
    )


def test_the_webhook_may_write_its_own_secret_and_configurations_only() -> None:
    objects = webhook(Install(serverless=True))

    granted = set[tuple[str, ...]]()
    for role in of_kind(objects, "Role", "ClusterRole"):
        for rule in role["rules"]:
            granted |= set(product(rule["resources"], rule["resourceNames"], rule["verbs"]))
    assert granted == {
        ("secrets", "kruise-probe-webhook-certs", "get"),
        ("secrets", "kruise-probe-webhook-certs", "patch"),
        ("validatingwebhookconfigurations", "kruise-probe", "get"),
        ("validatingwebhookconfigurations", "kruise-probe", "patch"),
        ("mutatingwebhookconfigurations", "kruise-probe", "get"),
        ("mutatingwebhookconfigurations", "kruise-probe", "patch"),
    }


def test_reviews_of_markers_fail_closed_and_those_of_pods_never_block() -> None:
    policy, binding = objects_in("own_node_policy", "kruise-system")
    policies = {}
    for configuration in webhook(Install(serverless=True)):
        if "webhooks" in configuration:
            (called,) = configuration["webhooks"]
            policies[configuration["kind"]] = called["failurePolicy"]

    assert policy["spec"]["failurePolicy"] == "Fail"
    assert binding["spec"]["validationActions"] == ["Deny"]
    assert policies == {
        "ValidatingWebhookConfiguration": "Fail",
        "MutatingWebhookConfiguration": "Ignore",
    }
