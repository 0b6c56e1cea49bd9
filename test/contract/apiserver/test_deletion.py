"""How objects end: at once, gracefully, held by finalizers, with their owners, with their namespace."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from support.contract_api import PROTOBUF, Api, ApiResponse, marker, node_pod_probe, pod
from support.patience import PATIENCE_SECONDS
from support.programs import until

FINALIZER = "example.com/held"


def parsed(stamp: str) -> datetime:
    return datetime.fromisoformat(stamp)


async def test_a_pod_on_a_node_waits_for_its_kubelet(api: Api) -> None:
    created = await api.create("pods", pod("p"))
    deleted = await api.delete(api.path("pods", "p"))
    assert deleted.code == 200
    assert deleted.meta["deletionGracePeriodSeconds"] == 30
    assert deleted.meta["generation"] == 2
    grace = parsed(deleted.meta["deletionTimestamp"]) - parsed(created.meta["creationTimestamp"])
    assert timedelta(seconds=29) <= grace <= timedelta(seconds=30 + PATIENCE_SECONDS)
    assert (await api.get(api.path("pods", "p"))).body == deleted.body
    ended = await api.delete(api.path("pods", "p"), gracePeriodSeconds=0)
    assert ended.code == 200
    assert ended.body["kind"] == "Pod"
    assert (await api.get(api.path("pods", "p"))).code == 404


async def test_a_pod_without_a_node_goes_at_once(api: Api) -> None:
    await api.create("pods", pod("p", node=""))
    assert (await api.delete(api.path("pods", "p"))).body["kind"] == "Pod"
    assert (await api.get(api.path("pods", "p"))).code == 404


async def test_a_finished_pod_goes_at_once(api: Api) -> None:
    await api.create("pods", pod("p"))
    await api.strategic(api.path("pods", "p") + "/status", {"status": {"phase": "Succeeded"}})
    await api.delete(api.path("pods", "p"))
    assert (await api.get(api.path("pods", "p"))).code == 404


async def test_grace_can_be_chosen_and_shortened_but_not_prolonged(api: Api) -> None:
    await api.create("pods", pod("p"))
    path = api.path("pods", "p")
    first = await api.delete(path, {"gracePeriodSeconds": 20})
    assert first.meta["deletionGracePeriodSeconds"] == 20
    longer = await api.delete(path, gracePeriodSeconds=40)
    assert longer.meta["deletionGracePeriodSeconds"] == 20
    assert longer.revision == first.revision
    shorter = await api.delete(path, gracePeriodSeconds=5)
    assert shorter.meta["deletionGracePeriodSeconds"] == 5
    assert parsed(shorter.meta["deletionTimestamp"]) < parsed(first.meta["deletionTimestamp"])


@pytest.mark.parametrize(
    ("body", "query", "code", "seconds"),
    [
        pytest.param(None, {"gracePeriodSeconds": 5}, 200, 5, id="no-body"),
        pytest.param({}, {"gracePeriodSeconds": 5}, 200, 30, id="empty-object"),
        pytest.param({"gracePeriodSeconds": 9}, {"dryRun": "x"}, 200, 9, id="both"),
        pytest.param(b" ", {"gracePeriodSeconds": 5}, 400, None, id="blank"),
        pytest.param(None, {"gracePeriodSeconds": ""}, 400, None, id="empty-number"),
        pytest.param(None, {"dryRun": ""}, 422, None, id="empty-dry-run"),
    ],
)
async def test_the_query_has_the_options_only_without_a_body(
    api: Api, body: Any, query: dict[str, Any], code: int, seconds: int | None
) -> None:
    await api.create("pods", pod("p"))
    deleted = await api.delete(api.path("pods", "p"), body, **query)
    assert deleted.code == code
    assert deleted.body["metadata"].get("deletionGracePeriodSeconds") == seconds


async def test_an_update_cannot_take_a_deletion_back(api: Api) -> None:
    await api.create("pods", pod("p"))
    deleted = await api.delete(api.path("pods", "p"))
    patch = {"metadata": {"deletionTimestamp": None, "labels": {"a": "b"}}}
    patched = await api.merge(api.path("pods", "p"), patch)
    assert patched.code == 200
    assert patched.meta["deletionTimestamp"] == deleted.meta["deletionTimestamp"]


@pytest.mark.parametrize("kind", ["pods", "podprobemarkers"])
async def test_the_last_finalizer_ends_the_object(api: Api, kind: str) -> None:
    body = pod("x", node="") if kind == "pods" else marker("x")
    body["metadata"]["finalizers"] = [FINALIZER, "example.com/other"]
    await api.create(kind, body)
    path = api.path(kind, "x")
    deleted = await api.delete(path)
    assert deleted.code == 200
    assert deleted.body["kind"] == body["kind"]
    assert "deletionTimestamp" in deleted.meta
    assert deleted.meta["deletionGracePeriodSeconds"] == 0
    assert deleted.meta["generation"] == 2
    again = await api.delete(path)
    assert again.code == 200
    assert again.revision == deleted.revision
    one = await api.merge(path, {"metadata": {"finalizers": ["example.com/other"]}})
    assert one.meta["finalizers"] == ["example.com/other"]
    last = await api.merge(path, {"metadata": {"finalizers": None}})
    assert last.code == 200
    assert "finalizers" not in last.meta
    assert (await api.get(path)).code == 404


async def test_a_deleted_object_takes_no_new_finalizers(api: Api) -> None:
    body = marker("x")
    body["metadata"]["finalizers"] = [FINALIZER]
    await api.create("podprobemarkers", body)
    path = api.path("podprobemarkers", "x")
    await api.delete(path)
    refused = await api.merge(path, {"metadata": {"finalizers": [FINALIZER, "example.com/late"]}})
    assert (refused.code, refused.body["reason"]) == (422, "Invalid")
    assert refused.body["details"]["causes"][0]["field"] == "metadata.finalizers"
    assert 'found new finalizers []string{"example.com/late"}' in refused.body["message"]
    await api.merge(path, {"metadata": {"finalizers": None}})


async def test_a_custom_resource_goes_at_once_and_answers_success(api: Api) -> None:
    created = await api.create("podprobemarkers", marker())
    deleted = await api.delete(api.path("podprobemarkers", "m"))
    assert deleted.code == 200
    assert deleted.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {
            "name": "m",
            "group": "apps.kruise.io",
            "kind": "podprobemarkers",
            "uid": created.meta["uid"],
        },
    }


@pytest.mark.parametrize("kind", ["pods", "podprobemarkers"])
async def test_preconditions_hold_a_deletion_back(api: Api, kind: str) -> None:
    created = await api.create(kind, pod("x") if kind == "pods" else marker("x"))
    path = api.path(kind, "x")
    for wrong in ({"uid": "another"}, {"resourceVersion": "1"}):
        refused = await api.delete(path, {"preconditions": wrong})
        assert (refused.code, refused.body["reason"]) == (409, "Conflict")
    right = {"uid": created.meta["uid"], "resourceVersion": created.revision}
    assert (await api.delete(path, {"preconditions": right})).code == 200


async def test_a_collection_is_deleted_by_selector(api: Api) -> None:
    for name, app in (("a", "x"), ("b", "x"), ("c", "y")):
        body = marker(name)
        body["metadata"]["labels"] = {"app": app}
        await api.create("podprobemarkers", body)
    deleted = await api.delete(api.path("podprobemarkers"), labelSelector="app=x")
    assert deleted.code == 200
    left = (await api.get(api.path("podprobemarkers"))).body["items"]
    assert [each["metadata"]["name"] for each in left] == ["c"]


async def test_what_a_node_owns_goes_with_it(api: Api) -> None:
    name = f"n-{api.unique}"
    labels = {"contract": api.unique}
    node = await api.create("nodes", {"metadata": {"name": name, "labels": labels}})
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.meta["uid"]}
    body = node_pod_probe(name)
    body["metadata"] |= {"ownerReferences": [owner], "labels": labels}
    await api.create("nodepodprobes", body)
    await api.delete(api.path("nodes", name))
    await api.until_gone(api.path("nodepodprobes", name))


async def test_an_owner_that_was_never_there_counts_as_gone(api: Api) -> None:
    body = pod("p", node="")
    body["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "never",
            "uid": "3b7e1d0c-0000-0000-0000-000000000000",
        }
    ]
    await api.create("pods", body)
    await api.until_gone(api.path("pods", "p"))


NEVER = {"kind": "Pod", "name": "never", "uid": "3b7e1d0c-0000-0000-0000-000000000000"}


@pytest.mark.parametrize(
    ("version", "kind"), [("example.com/v1", "Unserved"), ("v1", "Unserved"), ("v7", "Pod")]
)
async def test_an_owner_of_an_unserved_kind_counts_as_there(
    api: Api, version: str, kind: str
) -> None:
    gone = {**NEVER, "apiVersion": "v1"}
    unknown = {**NEVER, "apiVersion": version, "kind": kind, "uid": NEVER["uid"][::-1]}
    owners = {"one": [unknown], "both": [gone, unknown], "z": [gone]}
    for name, references in owners.items():
        await api.create("pods", pod(name, node="", ownerReferences=references))
    await api.until_gone(api.path("pods", "z"))
    left = (await api.get(api.path("pods"))).body["items"]
    assert [each["metadata"]["name"] for each in left] == ["both", "one"]


@pytest.mark.parametrize("kind", ["pods", "podprobemarkers"])
@pytest.mark.parametrize(
    ("options", "reason", "name", "message"),
    [
        pytest.param(
            {"propagationPolicy": "foreground"},
            "FieldValueNotSupported",
            "propagationPolicy",
            'Unsupported value: "foreground": supported values: ',
            id="policy",
        ),
        pytest.param(
            {"propagationPolicy": ""},
            "FieldValueNotSupported",
            "propagationPolicy",
            'Unsupported value: "": supported values: ',
            id="empty-policy",
        ),
        pytest.param(
            {"dryRun": ["x"]},
            "FieldValueNotSupported",
            "dryRun",
            'supported values: "All"',
            id="dry-run",
        ),
    ],
)
async def test_options_that_there_are_not_delete_nothing(
    api: Api, kind: str, options: dict[str, object], reason: str, name: str, message: str
) -> None:
    await api.create(kind, pod("x", node="") if kind == "pods" else marker("x"))
    for path in (api.path(kind, "x"), api.path(kind)):
        refused = await api.delete(path, options)
        assert (refused.code, refused.body["reason"]) == (422, "Invalid"), refused
        assert refused.body["message"].startswith('DeleteOptions.meta.k8s.io "" is invalid: ')
        assert refused.body["details"]["kind"] == "DeleteOptions"
        (cause,) = refused.body["details"]["causes"]
        assert (cause["reason"], cause["field"]) == (reason, name)
        assert message in cause["message"]
    for query in ({"propagationPolicy": "foreground"}, {"dryRun": "x"}):
        refused = await api.delete(api.path(kind, "x"), **query)
        assert (refused.code, refused.body["reason"]) == (422, "Invalid"), refused
    left = await api.get(api.path(kind, "x"))
    assert (left.code, "deletionTimestamp" in left.meta) == (200, False)


def protobuf(raw: bytes) -> bytes:
    """What Go's typed clients send: the envelope, with the type and the bytes of an object."""
    of_type = field(1, b"v1") + field(2, b"DeleteOptions")
    return b"k8s\x00" + field(1, of_type) + field(2, raw) + field(3, b"") + field(4, b"")


def field(number: int, value: bytes | int) -> bytes:
    """A field of a protobuf message; numbers and lengths below 128."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


@pytest.mark.parametrize("kind", ["pods", "podprobemarkers"])
async def test_options_may_come_as_protobuf(api: Api, kind: str) -> None:
    created = await api.create(kind, pod("x", node="") if kind == "pods" else marker("x"))
    path = api.path(kind, "x")

    async def delete(raw: bytes) -> ApiResponse:
        return await api.send("DELETE", path, protobuf(raw), content_type=PROTOBUF)

    assert (await delete(field(5, b"All"))).code == 200
    assert (await delete(field(2, field(1, b"another")))).code == 409
    assert (await delete(field(2, field(2, b"1")))).code == 409
    assert (await delete(field(4, b"foreground"))).code == 422
    assert (await delete(field(3, 1) + field(4, b"Orphan"))).code == 422
    assert (await api.get(path)).revision == created.revision
    uid = created.meta["uid"].encode()
    gone = await delete(field(1, 0) + field(2, field(1, uid)) + field(4, b"Background"))
    assert gone.code == 200
    assert (await api.get(path)).code == 404


async def test_a_grace_period_may_come_as_protobuf(api: Api) -> None:
    await api.create("pods", pod("p"))
    path = api.path("pods", "p")
    deleted = await api.send("DELETE", path, protobuf(field(1, 20)), content_type=PROTOBUF)
    assert deleted.meta["deletionGracePeriodSeconds"] == 20


async def test_options_in_an_unknown_form_delete_nothing(api: Api) -> None:
    await api.create("podprobemarkers", marker())
    path = api.path("podprobemarkers", "m")
    refused = await api.send("DELETE", path, b"{}", content_type="text/plain")
    assert (refused.code, refused.body["reason"]) == (415, "UnsupportedMediaType")
    assert (await api.get(path)).code == 200


async def test_a_namespace_takes_everything_with_it(api: Api) -> None:
    name = f"{api.namespace}-b"
    created = await api.post(api.path("namespaces"), {"metadata": {"name": name}})
    assert created.body["status"] == {"phase": "Active"}
    assert created.meta["labels"]["kubernetes.io/metadata.name"] == name
    body = marker("held")
    body["metadata"]["finalizers"] = [FINALIZER]
    await api.post(api.path("podprobemarkers", namespace=name), body)
    await api.post(api.path("podprobemarkers", namespace=name), marker("free"))
    deleted = await api.delete(api.path("namespaces", name))
    assert deleted.body["status"]["phase"] == "Terminating"
    await api.until_gone(api.path("podprobemarkers", "free", namespace=name))
    refused = await api.post(api.path("podprobemarkers", namespace=name), marker("late"))
    assert (refused.code, refused.body["reason"]) == (403, "Forbidden")
    assert refused.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    await api.merge(
        api.path("podprobemarkers", "held", namespace=name), {"metadata": {"finalizers": None}}
    )
    await api.until_gone(api.path("namespaces", name))


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_a_namespace_of_the_system_stays(api: Api, name: str) -> None:
    path = api.path("namespaces", name)
    assert (await api.delete(path, {"preconditions": {"uid": "another"}})).code == 409
    for options in ({"dryRun": ["All"]}, {}):
        refused = await api.delete(path, options)
        assert (refused.code, refused.body["reason"]) == (403, "Forbidden")
        why = f'namespaces "{name}" is forbidden: this namespace may not be deleted'
        assert refused.body["message"] == why
        assert refused.body["details"] == {"name": name, "kind": "namespaces"}
    assert (await api.get(path)).body["status"]["phase"] == "Active"


async def test_a_pod_that_finished_its_grace_can_still_report(api: Api) -> None:
    await api.create("pods", pod("p"))
    await api.delete(api.path("pods", "p"))
    patch = {"status": {"phase": "Failed"}}
    patched = await api.strategic(api.path("pods", "p") + "/status", patch)
    assert patched.body["status"]["phase"] == "Failed"
    assert "deletionTimestamp" in patched.meta


async def test_a_reference_to_one_of_two_owners_goes_with_it(api: Api) -> None:
    owners = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": name,
            "uid": (await api.create("configmaps", {"metadata": {"name": name}})).meta["uid"],
        }
        for name in "ab"
    ]
    await api.create("configmaps", {"metadata": {"name": "both", "ownerReferences": owners}})
    await api.delete(api.path("configmaps", "a"))

    async def has_one_owner() -> bool:
        return len((await api.get(api.path("configmaps", "both"))).meta["ownerReferences"]) == 1

    await until("the reference is removed", has_one_owner)


async def test_an_owner_in_another_namespace_does_not_keep_its_dependent(api: Api) -> None:
    elsewhere = api.path("configmaps", namespace="default")
    name = f"owner-{api.unique}"
    owner = await api.post(elsewhere, {"metadata": {"name": name}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner.meta["uid"]}
    await api.create("configmaps", {"metadata": {"name": "d", "ownerReferences": [reference]}})
    await api.until_gone(api.path("configmaps", "d"))
    await api.delete(f"{elsewhere}/{name}")


@pytest.mark.parametrize(
    ("node", "options"),
    [
        pytest.param("", {}, id="no-node"),
        pytest.param(None, {"gracePeriodSeconds": 0}, id="no-grace-period"),
    ],
)
async def test_a_pod_that_is_deleted_at_once_is_modified_first(
    api: Api, node: str | None, options: dict[str, Any]
) -> None:
    created = await api.create("pods", pod("p", node=node))
    async with api.watch(api.path("pods"), resourceVersion=created.revision) as stream:
        await api.delete(api.path("pods", "p"), **options)
        modified, deleted = await stream.next(), await stream.next()
    assert (modified["type"], deleted["type"]) == ("MODIFIED", "DELETED")
    for event in (modified, deleted):
        metadata = event["object"]["metadata"]
        assert (metadata["generation"], metadata["deletionGracePeriodSeconds"]) == (2, 0)


async def test_the_last_deletion_of_a_terminating_pod_modifies_it_first(api: Api) -> None:
    """As the kubelet sends it when the containers have stopped."""
    await api.create("pods", pod("p"))
    marked = await api.delete(api.path("pods", "p"))
    async with api.watch(api.path("pods"), resourceVersion=marked.revision) as stream:
        await api.delete(api.path("pods", "p"), gracePeriodSeconds=0)
        assert [(await stream.next())["type"] for _ in range(2)] == ["MODIFIED", "DELETED"]
