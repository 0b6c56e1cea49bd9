"""Built requests: method, target, body and flags."""

import msgspec
import pytest

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.resources import EVENTS, LEASES, MARKERS, NODE_POD_PROBES, PODS
from kruise_probe.client import request as requests
from kruise_probe.client.request import PatchType

WEB = NamespacedName("default", "web-0")


def _list(**changes: object) -> str:
    options: dict[str, object] = {
        "namespace": "",
        "limit": 0,
        "continue_token": "",
        "resource_version": "",
        "field_selector": "",
        "label_selector": "",
    }
    return requests.list_page(PODS, **(options | changes)).target  # type: ignore[arg-type]  # a table


@pytest.mark.parametrize(
    ("options", "target"),
    [
        pytest.param({}, "/api/v1/pods", id="everything"),
        pytest.param({"namespace": "a b"}, "/api/v1/namespaces/a%20b/pods", id="namespace"),
        pytest.param(
            {"limit": 500, "resource_version": "0"},
            "/api/v1/pods?limit=500&resourceVersion=0",
            id="first-page",
        ),
        pytest.param(
            {"limit": 500, "resource_version": "0", "continue_token": "abc="},
            "/api/v1/pods?limit=500&continue=abc%3D",
            id="a-continued-page-names-no-version",
        ),
        pytest.param(
            {"field_selector": "metadata.name=n,spec.x!=y", "label_selector": "a in (b,c)"},
            "/api/v1/pods?fieldSelector=metadata.name%3Dn%2Cspec.x%21%3Dy&labelSelector=a%20in%20%28b%2Cc%29",
            id="selectors-are-quoted",
        ),
    ],
)
def test_list_request_has_only_the_given_parameters(
    options: dict[str, object], target: str
) -> None:
    assert _list(**options) == target


def test_timeout_of_a_watch_is_at_least_a_second() -> None:
    request = requests.watch(
        PODS,
        namespace="",
        resource_version="",
        timeout_seconds=0.5,
        send_initial_events=False,
        field_selector="",
        label_selector="",
    )

    assert request.target == "/api/v1/pods?watch=true&allowWatchBookmarks=true&timeoutSeconds=1"


@pytest.mark.parametrize(
    ("initial", "target"),
    [
        pytest.param(
            False,
            "/apis/apps.kruise.io/v1alpha1/nodepodprobes?watch=true&allowWatchBookmarks=true"
            "&timeoutSeconds=300&resourceVersion=5&fieldSelector=metadata.name%3Dn1",
            id="from-a-version",
        ),
        pytest.param(
            True,
            "/apis/apps.kruise.io/v1alpha1/nodepodprobes?watch=true&allowWatchBookmarks=true"
            "&timeoutSeconds=300&resourceVersion=5&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
            "&fieldSelector=metadata.name%3Dn1",
            id="with-the-list",
        ),
    ],
)
def test_watch_request_enables_bookmarks(initial: bool, target: str) -> None:
    request = requests.watch(
        NODE_POD_PROBES,
        namespace="",
        resource_version="5",
        timeout_seconds=300.9,
        send_initial_events=initial,
        field_selector="metadata.name=n1",
        label_selector="",
    )

    assert request.target == target


def test_patch_request_has_type_field_manager_and_subresource() -> None:
    request = requests.patch(
        PODS,
        WEB,
        b"{}",
        patch_type=PatchType.STRATEGIC_MERGE,
        subresource="status",
        field_manager="kruise-probe-manager",
    )

    assert request.method == "PATCH"
    assert (
        request.target
        == "/api/v1/namespaces/default/pods/web-0/status?fieldManager=kruise-probe-manager"
    )
    assert request.content_type == "application/strategic-merge-patch+json"
    assert str(request) == "PATCH pods/status default/web-0"


@pytest.mark.parametrize(
    ("patch_type", "repeatable"),
    [
        pytest.param(PatchType.MERGE, True, id="merge"),
        pytest.param(PatchType.STRATEGIC_MERGE, True, id="strategic-merge"),
        pytest.param(PatchType.JSON, False, id="json-patch"),
    ],
)
def test_only_idempotent_patches_are_repeatable(patch_type: PatchType, repeatable: bool) -> None:
    request = requests.patch(
        PODS,
        WEB,
        b"{}",
        patch_type=patch_type,
        subresource="",
        field_manager="m",
    )

    assert request.repeatable is repeatable


def test_streams_of_a_pod_are_not_repeatable() -> None:
    request = requests.pod_stream(WEB, "exec", [("command", "a b")], upgrade="Upgrade: x\r\n")
    assert request.target == "/api/v1/namespaces/default/pods/web-0/exec?command=a%20b"
    assert not request.repeatable


def test_create_and_replace_are_not_repeatable() -> None:
    assert not requests.create(EVENTS, b"{}", namespace="a", field_manager="m").repeatable
    assert not requests.replace(LEASES, WEB, b"{}", subresource="", field_manager="m").repeatable


def test_delete_request_may_have_a_uid_precondition() -> None:
    with_uid = requests.delete(MARKERS, NamespacedName("a", "b"), uid="u1")
    without = requests.delete(MARKERS, NamespacedName("a", "b"), uid="")

    assert msgspec.json.decode(with_uid.body or b"")["preconditions"] == {"uid": "u1"}
    assert with_uid.content_type == "application/json"
    assert (without.body, without.content_type) == (None, "")
