"""The manifests: fields of Kruise's CRDs, and every permission."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.cases import cases

from kruise_probe.api.names import daemon_lease_name
from kruise_probe.manifests import objects_in
from kruise_probe.manifests.crds import marker_crd, node_pod_probe_crd
from kruise_probe.manifests.install import Install, default_install, webhook

Rights = set[tuple[str, str]]


def rights(objects: list[dict[str, Any]], kind: str) -> Rights:
    (role,) = [each for each in objects if each["kind"] == kind]
    return {
        (verb, resource)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }


def verbs(resource: str, *names: str) -> Rights:
    return {(name, resource) for name in names}


def test_the_manager_has_exactly_these_rules_and_none_on_secrets() -> None:
    objects = objects_in("manager_rbac", "kruise-system")

    assert rights(objects, "ClusterRole") == (
        verbs("pods", "get", "list", "watch")
        | verbs("nodes", "get", "list", "watch")
        | verbs("pods/status", "patch")
        | verbs("events", "create", "patch")
        | verbs("podprobemarkers", "get", "list", "watch", "patch")
        | verbs("podprobemarkers/status", "patch")
        | verbs("nodepodprobes", "get", "list", "watch", "create", "patch", "delete")
        | verbs("customresourcedefinitions", "get")
    )
    assert rights(objects, "Role") == verbs("leases", "get", "list", "watch", "create", "patch")


def test_own_node_reads_replace_the_rules_that_read_all_nodes() -> None:
    documents = default_install(Install(own_node_reads=True))
    roles = [each for each in documents if each["kind"] == "ClusterRole"]
    of_daemon = [each for each in roles if "kruise-probe-daemon" in each["metadata"]["name"]]
    added = [each for each in roles if each["metadata"]["name"] == "kruise-probe-manager-own-reads"]
    on = (f"impersonate-on:associated-node:{verb}" for verb in ("get", "list", "watch"))

    assert [rights([each], "ClusterRole") for each in of_daemon] == [
        verbs("events", "create", "patch"),
        verbs("nodes", "impersonate:associated-node")
        | verbs("nodepodprobes", *on)
        | verbs("nodepodprobes/status", "update"),
    ]
    assert rights(added, "ClusterRole") == (
        verbs("clusterroles", "list", "watch", "create")
        | verbs("clusterrolebindings", "list", "watch", "create")
    )


def test_metrics_secure_adds_two_rules_and_a_role_for_readers() -> None:
    auth, binding, reader = objects_in("metrics_rbac", "kruise-system")

    assert rights([auth], "ClusterRole") == (
        verbs("tokenreviews", "create") | verbs("subjectaccessreviews", "create")
    )
    assert binding["roleRef"]["name"] == auth["metadata"]["name"]
    assert [each["name"] for each in binding["subjects"]] == [
        "kruise-probe-manager",
        "kruise-probe-daemon",
    ]
    assert reader["metadata"]["name"] == "kruise-probe-metrics-reader"
    assert reader["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]


@pytest.mark.parametrize("secure", [True, False])
def test_the_roles_for_metrics_are_installed_with_the_flag_only(secure: bool) -> None:
    documents = default_install(Install(metrics_secure=secure))
    names = {each["metadata"]["name"] for each in documents}
    workloads = [each for each in documents if each["kind"] in ("Deployment", "DaemonSet")]

    assert ("kruise-probe-metrics-auth" in names) is secure
    assert ("kruise-probe-metrics-reader" in names) is secure
    for each in workloads:
        (container,) = each["spec"]["template"]["spec"]["containers"]
        assert ("--metrics-secure" in container["args"]) is secure
        shares_the_port = each["kind"] == "DaemonSet"
        for probe in ("livenessProbe", "readinessProbe"):
            https = container[probe]["httpGet"].get("scheme") == "HTTPS"
            assert https is (secure and shares_the_port)


def schema_at(crd: dict[str, Any], *path: str) -> dict[str, Any]:
    at: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in path:
        at = at["properties"][name]
        at = at.get("items", at)
    return at


REQUIRED = {
    "marker-spec": (marker_crd(), ("spec",), ["probes", "selector"]),
    "marker-probe": (marker_crd(), ("spec", "probes"), ["containerName", "name", "probe"]),
    "marker-policy": (marker_crd(), ("spec", "probes", "markerPolicy"), ["state"]),
    "node-entry": (node_pod_probe_crd(), ("spec", "podProbes"), ["IP", "name", "namespace", "uid"]),
}


@cases("crd path required", **REQUIRED)
def test_required_fields_are_those_of_kruise(
    crd: dict[str, Any], path: tuple[str, ...], required: list[str]
) -> None:
    assert schema_at(crd, *path)["required"] == required


def fields_without_text(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, each in schema.get("properties", {}).items():
        if "description" not in each and name != "metadata":  # the API server describes metadata
            yield f"{path}.{name}"
        yield from fields_without_text(each.get("items", each), f"{path}.{name}")


@cases("crd", ppm=marker_crd(), npp=node_pod_probe_crd())
def test_kubectl_explain_has_a_text_for_each_field(crd: dict[str, Any]) -> None:
    assert not list(fields_without_text(schema_at(crd)))


def test_http_get_has_the_defaults_of_core_v1_and_numbers_have_none() -> None:
    probe = schema_at(marker_crd(), "spec", "probes", "probe")

    assert probe["properties"]["httpGet"]["properties"]["path"]["default"] == "/"
    assert probe["properties"]["httpGet"]["properties"]["scheme"]["default"] == "HTTP"
    assert not [name for name, each in probe["properties"].items() if "default" in each]


def test_a_node_called_manager_has_a_lease_other_than_the_managers() -> None:
    policy, _ = objects_in("own_node_policy", "kruise-system")
    rules = [each["expression"] for each in policy["spec"]["validations"]]
    lease = (
        "variables.node == 'manager' ? 'kruise-probe--manager' : 'kruise-probe-' + variables.node"
    )

    assert daemon_lease_name("manager") == "kruise-probe--manager"
    assert f"request.resource.resource != 'leases' || request.name == ({lease})" in rules


def test_the_finalizer_of_a_marker_without_a_spec_skips_the_webhook() -> None:
    """Kruise's CRD allows no spec, and CEL fails on an absent field."""
    objects = webhook(Install())

    (validating,) = [each for each in objects if each["kind"] == "ValidatingWebhookConfiguration"]
    (markers,) = validating["webhooks"]
    assert [each["expression"] for each in markers["matchConditions"]] == [
        "!(request.operation != 'CREATE' && has(object.spec) == has(oldObject.spec) && "
        "(!has(object.spec) || object.spec == oldObject.spec))"
    ]


def test_the_webhook_may_write_its_own_secret_and_configurations_only() -> None:
    objects = webhook(Install(serverless=True))

    roles = [each for each in objects if each["kind"] in ("Role", "ClusterRole")]
    granted = {
        (verb, resource, name)
        for role in roles
        for rule in role["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
        for name in rule["resourceNames"]
    }
    configurations = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
    assert granted == {
        (verb, resource, name)
        for verb in ("get", "patch")
        for resource, name in (
            ("secrets", "kruise-probe-webhook-certs"),
            *((each, "kruise-probe") for each in configurations),
        )
    }


def test_reviews_of_markers_fail_closed_and_those_of_pods_never_block() -> None:
    policy, binding = objects_in("own_node_policy", "kruise-system")
    policies = {
        each["kind"]: [webhook["failurePolicy"] for webhook in each["webhooks"]]
        for each in webhook(Install(serverless=True))
        if "webhooks" in each
    }

    assert (policy["spec"]["failurePolicy"], binding["spec"]["validationActions"]) == (
        "Fail",
        ["Deny"],
    )
    assert policies == {
        "ValidatingWebhookConfiguration": ["Fail"],
        "MutatingWebhookConfiguration": ["Ignore"],
    }
