"""What patches do to lists and maps, and how senseless ones are refused."""

from typing import Any

import pytest
from support.contract_api import Api, marker, pod


def conditions(of: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["type"], each["status"]) for each in of["status"].get("conditions", [])]


async def test_conditions_merge_by_type(api: Api) -> None:
    await api.create("pods", pod("p"))
    path = api.path("pods", "p") + "/status"
    for kind, status in (("a/x", "True"), ("b/x", "True"), ("a/x", "False")):
        patch = {"status": {"conditions": [{"type": kind, "status": status}]}}
        await api.strategic(path, patch)
    assert sorted(conditions((await api.get(path)).body)) == [("a/x", "False"), ("b/x", "True")]


async def test_new_items_come_before_those_that_the_patch_does_not_name(api: Api) -> None:
    await api.create("pods", pod("p"))
    path = api.path("pods", "p") + "/status"
    both = [{"type": "a/x", "status": "True"}, {"type": "b/x", "status": "True"}]
    await api.strategic(path, {"status": {"conditions": both}})
    patch = {"status": {"conditions": [{"type": "c/x", "status": "True"}]}}
    patched = await api.strategic(path, patch)
    assert [kind for kind, _ in conditions(patched.body)] == ["c/x", "a/x", "b/x"]


async def test_a_directive_deletes_one_item(api: Api) -> None:
    await api.create("pods", pod("p"))
    path = api.path("pods", "p") + "/status"
    both = [{"type": "a/x", "status": "True"}, {"type": "b/x", "status": "True"}]
    await api.strategic(path, {"status": {"conditions": both}})
    patch = {"status": {"conditions": [{"type": "a/x", "$patch": "delete"}]}}
    assert conditions((await api.strategic(path, patch)).body) == [("b/x", "True")]


async def test_a_directive_may_delete_what_is_not_there(api: Api) -> None:
    created = await api.create("pods", pod("p"))
    path = api.path("pods", "p") + "/status"
    patch = {"status": {"conditions": [{"type": "a/x", "$patch": "delete"}]}}
    patched = await api.strategic(path, patch)
    assert patched.code == 200
    assert conditions(patched.body) == conditions(created.body)


async def test_a_directive_replaces_a_list(api: Api) -> None:
    await api.create("pods", pod("p"))
    path = api.path("pods", "p") + "/status"
    await api.strategic(path, {"status": {"conditions": [{"type": "a/x", "status": "True"}]}})
    patch = {"status": {"conditions": [{"$patch": "replace"}, {"type": "b/x", "status": "True"}]}}
    assert conditions((await api.strategic(path, patch)).body) == [("b/x", "True")]


async def test_a_directive_replaces_a_map(api: Api) -> None:
    await api.create("pods", pod("p", labels={"a": "1", "b": "2"}))
    patch = {"metadata": {"labels": {"$patch": "replace", "c": "3"}}}
    assert (await api.strategic(api.path("pods", "p"), patch)).meta["labels"] == {"c": "3"}


async def test_an_order_directive_orders(api: Api) -> None:
    await api.create("pods", pod("p"))
    path = api.path("pods", "p") + "/status"
    three = [{"type": f"{letter}/x", "status": "True"} for letter in "abc"]
    await api.strategic(path, {"status": {"conditions": three}})
    order = [{"type": "c/x"}, {"type": "a/x"}]
    patch = {
        "status": {
            "$setElementOrder/conditions": order,
            "conditions": [{"type": "a/x", "status": "False"}],
        }
    }
    patched = await api.strategic(path, patch)
    assert patched.code == 200, patched
    assert conditions(patched.body) == [("b/x", "True"), ("c/x", "True"), ("a/x", "False")]


async def test_finalizers_merge_and_leave_one_by_one(api: Api) -> None:
    await api.create("pods", pod("p", finalizers=["example.com/a"]))
    path = api.path("pods", "p")
    added = await api.strategic(path, {"metadata": {"finalizers": ["example.com/b"]}})
    assert sorted(added.meta["finalizers"]) == ["example.com/a", "example.com/b"]
    for name in ("example.com/a", "example.com/b"):
        patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": [name]}}
        await api.strategic(path, patch)
    assert "finalizers" not in (await api.get(path)).meta


async def test_containers_merge_by_name(api: Api) -> None:
    body = pod("p")
    body["spec"]["containers"].append({"name": "d", "image": "j"})
    await api.create("pods", body)
    patch = {"spec": {"containers": [{"name": "d", "image": "k"}]}}
    patched = await api.strategic(api.path("pods", "p"), patch)
    images = {each["name"]: each["image"] for each in patched.body["spec"]["containers"]}
    assert images == {"c": "i", "d": "k"}


async def test_a_merge_patch_replaces_lists_and_removes_by_null(api: Api) -> None:
    await api.create("pods", pod("p", labels={"a": "1", "b": "2"}))
    path = api.path("pods", "p")
    patched = await api.merge(path, {"metadata": {"labels": {"a": None, "c": "3"}}})
    assert patched.meta["labels"] == {"b": "2", "c": "3"}
    two = [{"type": "a/x", "status": "True"}, {"type": "b/x", "status": "True"}]
    await api.merge(f"{path}/status", {"status": {"conditions": two}})
    one = await api.merge(f"{path}/status", {"status": {"conditions": two[1:]}})
    assert conditions(one.body) == [("b/x", "True")]


@pytest.mark.parametrize("kind", ["merge", "strategic"])
async def test_a_patch_that_is_no_object_is_refused(api: Api, kind: str) -> None:
    await api.create("pods", pod("p"))
    send = api.merge if kind == "merge" else api.strategic
    assert (await send(api.path("pods", "p"), b"[]")).code == 400
    assert (await send(api.path("pods", "p"), b"{")).code == 400


async def test_a_patch_cannot_rename(api: Api) -> None:
    await api.create("pods", pod("p"))
    refused = await api.merge(api.path("pods", "p"), {"metadata": {"name": "q"}})
    assert refused.code == 400


async def test_an_item_without_its_merge_key_is_refused(api: Api) -> None:
    await api.create("pods", pod("p"))
    path = api.path("pods", "p") + "/status"
    await api.strategic(path, {"status": {"conditions": [{"type": "a/x", "status": "True"}]}})
    refused = await api.strategic(path, {"status": {"conditions": [{"status": "True"}]}})
    assert refused.code == 500
    assert "does not contain declared merge key: type" in refused.body["message"]


async def test_a_patch_of_the_selector_of_a_marker_is_refused(api: Api) -> None:
    await api.create("podprobemarkers", marker())
    patch = {"spec": {"selector": {"matchLabels": {"app": "b"}}}}
    refused = await api.merge(api.path("podprobemarkers", "m"), patch)
    assert (refused.code, refused.body["reason"]) == (422, "Invalid")
    assert {each["field"] for each in refused.body["details"]["causes"]} == {"spec.selector"}


@pytest.mark.parametrize("kind", ["pods", "podprobemarkers"])
@pytest.mark.parametrize("form", ["text/plain", "application/json", "application/yaml"])
async def test_a_patch_in_an_unknown_form_is_refused_before_its_object_is_missed(
    api: Api, kind: str, form: str
) -> None:
    path = api.path(kind, "never")
    refused = await api.send("PATCH", path, {}, content_type=form)
    assert (refused.code, refused.body["reason"]) == (415, "UnsupportedMediaType")
    assert (await api.merge(path, {})).code == 404


@pytest.mark.parametrize("metadata", [None, {"name": "q"}, {"namespace": "q"}])
async def test_a_patch_to_another_name_is_refused_with_the_warnings_of_the_object(
    api: Api, metadata: Any
) -> None:
    await api.create("pods", pod("p"))
    patch = {"metadata": metadata, "spec": {"unknown": 1}}
    refused = await api.merge(api.path("pods", "p"), patch)
    assert (refused.code, refused.body["reason"]) == (400, "BadRequest")
    assert refused.headers["Warning"] == '299 - "unknown field \\"spec.unknown\\""'


@pytest.mark.parametrize(
    ("change", "code", "custom_code"),
    [
        pytest.param({"kind": None}, 200, 422, id="no-kind"),
        pytest.param({"apiVersion": None}, 400, 500, id="no-version"),
        pytest.param({"kind": None, "apiVersion": None}, 400, 422, id="neither"),
        pytest.param({"kind": "Pod"}, 422, 422, id="another-kind"),
        pytest.param({"apiVersion": "v2"}, 422, 422, id="another-version"),
        pytest.param({"metadata": "x"}, 422, 422, id="text-as-metadata"),
        pytest.param({"metadata": None}, 400, 400, id="no-metadata"),
    ],
)
async def test_a_patched_object_keeps_its_type_and_name(
    api: Api, change: dict[str, Any], code: int, custom_code: int
) -> None:
    await api.create("configmaps", {"metadata": {"name": "c"}})
    await api.create("podprobemarkers", marker("c"))
    for kind, wanted in (("configmaps", code), ("podprobemarkers", custom_code)):
        assert (await api.merge(api.path(kind, "c"), change)).code == wanted


async def test_a_strategic_merge_patch_may_name_another_type(api: Api) -> None:
    await api.create("configmaps", {"metadata": {"name": "c"}})
    patched = await api.strategic(api.path("configmaps", "c"), {"kind": "Pod", "apiVersion": "v2"})
    assert (patched.code, patched.body["kind"]) == (200, "ConfigMap")


async def test_a_merge_patch_removes_the_time_of_an_event(api: Api) -> None:
    involved = {"namespace": api.namespace}
    event = {
        "metadata": {"name": "e"},
        "involvedObject": involved,
        "lastTimestamp": "2026-01-02T03:04:05Z",
    }
    await api.create("events", event)
    patched = await api.merge(api.path("events", "e"), {"lastTimestamp": None})
    assert (patched.code, patched.body["lastTimestamp"]) == (200, None)
