"""REST paths, and lists with an invalid item."""

import json

import msgspec
import pytest

from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, NODES, PODS

OURS = "/apis/apps.kruise.io/v1alpha1"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param(PODS.path(), "/api/v1/pods", id="all-namespaces"),
        pytest.param(PODS.path("ns", "a", "status"), "/api/v1/namespaces/ns/pods/a/status", id="subresource"),
        pytest.param(NODES.path("ns", "n"), "/api/v1/nodes/n", id="cluster-scoped-has-no-namespace"),
        pytest.param(MARKERS.path("ns"), f"{OURS}/namespaces/ns/podprobemarkers", id="custom-resource"),
        pytest.param(NODE_POD_PROBES.path(name="a/../b"), f"{OURS}/nodepodprobes/a%2F..%2Fb", id="names-are-quoted"),
    ],
)  # fmt: skip
def test_paths(path: str, expected: str) -> None:
    assert path == expected


def test_invalid_item_is_undecodable_alone() -> None:
    meta = {"resourceVersion": "7", "continue": "next"}
    good = {"metadata": {"name": "good", "namespace": "ns"}}
    bad = {"name": "bad", "namespace": "ns", "resourceVersion": "5"}
    items = [good, {"metadata": bad, "spec": {"nodeName": 12}}]
    wire = {"kind": "PodList", "metadata": meta, "items": items}
    page = PODS.decode_list(json.dumps(wire).encode())
    assert [str(each.key) for each in page.items] == ["ns/good"]
    (undecodable,) = page.undecodable
    assert (str(undecodable.key), undecodable.resource_version) == ("ns/bad", "5")
    assert "$.spec.nodeName" in undecodable.error
    assert (page.resource_version, page.continue_token) == ("7", "next")


@pytest.mark.parametrize("items", ["", ',"items":null', ',"items":[]'])
def test_empty_list_in_any_notation_is_empty(items: str) -> None:
    page = PODS.decode_list(
        b'{"kind":"PodList","metadata":{"resourceVersion":"7"}%s}' % items.encode()
    )

    assert page == ([], [], "7", "")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'"no"', id="no-object"),
        pytest.param(b'{"kind": "Status", "metadata": {}, "status": "Failure"}', id="status"),
        pytest.param(b'{"kind": "Pod", "metadata": {"resourceVersion": "7"}}', id="one-object"),
        pytest.param(b"{}", id="empty"),
        pytest.param(b'{"message": "ok"}', id="of-a-proxy"),
        pytest.param(
            b'{"kind": "NodeList", "metadata": {"resourceVersion": "7"}, "items": []}',
            id="another-kind",
        ),
        pytest.param(b'{"kind": "PodList", "metadata": {}, "items": []}', id="without-version"),
    ],
)
def test_other_object_than_a_list_raises(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        PODS.decode_list(data)
