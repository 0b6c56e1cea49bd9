"""Lists: order, versions, pages, selectors."""

import pytest
from support.contract_api import (
    PARTIAL,
    Api,
    ApiResponse,
    absent_node,
    marker,
    node_pod_probe,
    pod,
)


def names(answer: ApiResponse) -> list[str]:
    assert answer.code == 200, answer
    return [each["metadata"]["name"] for each in answer.body["items"]]


async def five_pods(api: Api) -> list[ApiResponse]:
    created = []
    for number, (app, phase) in enumerate(
        [("a", "Running"), ("a", "Failed"), ("b", "Running"), ("b", "Pending"), ("", "Pending")]
    ):
        labels = {"app": app, "number": str(number)} if app else {"number": str(number)}
        name = f"p{number}"
        created.append(
            await api.create("pods", pod(name, node=f"{absent_node()}-{number % 2}", labels=labels))
        )
        if phase != "Pending":
            patch = {"status": {"phase": phase}}
            assert (await api.strategic(api.path("pods", name) + "/status", patch)).code == 200
    return created


async def test_a_list_of_built_in_objects_has_items_without_kind(api: Api) -> None:
    await api.create("pods", pod("p"))
    listed = await api.get(api.path("pods"))
    assert (listed.body["kind"], listed.body["apiVersion"]) == ("PodList", "v1")
    (item,) = listed.body["items"]
    assert not {"kind", "apiVersion"} & item.keys()


async def test_a_list_of_custom_resources_has_items_with_kind(api: Api) -> None:
    await api.create("podprobemarkers", marker())
    listed = await api.get(api.path("podprobemarkers"))
    assert listed.body["kind"] == "PodProbeMarkerList"
    (item,) = listed.body["items"]
    assert item["kind"] == "PodProbeMarker"


async def test_a_list_is_ordered_by_name_and_newer_than_its_items(api: Api) -> None:
    for name in ("b", "a.b", "a-b", "a"):
        await api.create("pods", pod(name))
    listed = await api.get(api.path("pods"))
    assert names(listed) == ["a", "a-b", "a.b", "b"]
    newest = max(int(each["metadata"]["resourceVersion"]) for each in listed.body["items"])
    assert int(listed.revision) >= newest


async def test_an_empty_list_has_items(api: Api) -> None:
    assert (await api.get(api.path("pods"))).body["items"] == []


async def test_all_namespaces_are_one_list(api: Api) -> None:
    await api.create("pods", pod("p", labels={"unique": api.unique}))
    path = api.path("pods", namespace="")
    assert names(await api.get(path, labelSelector=f"unique={api.unique}")) == ["p"]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param("app=a", "01", id="equals"),
        pytest.param("app==a", "01", id="double-equals"),
        pytest.param("app!=a", "234", id="not-equals-includes-absent"),
        pytest.param("app in (a, b)", "0123", id="in"),
        pytest.param("app notin (a)", "234", id="notin"),
        pytest.param("app", "0123", id="exists"),
        pytest.param("!app", "4", id="does-not-exist"),
        pytest.param("app=a,number=1", "1", id="and"),
        pytest.param("number>2", "34", id="greater"),
        pytest.param("number<2,app", "01", id="less"),
        pytest.param("app=", "", id="empty-value"),
    ],
)
async def test_label_selectors(api: Api, selector: str, expected: str) -> None:
    await five_pods(api)
    listed = await api.get(api.path("pods"), labelSelector=selector)
    assert names(listed) == [f"p{number}" for number in expected]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param("metadata.name=p1", "1", id="name"),
        pytest.param("spec.nodeName={node}-1", "13", id="node"),
        pytest.param("spec.nodeName!={node}-1", "024", id="another-node"),
        pytest.param("status.phase=Running", "02", id="phase"),
        pytest.param("status.phase!=Running,status.phase!=Failed", "34", id="two-phases-excluded"),
        pytest.param("spec.nodeName={node}-0,status.phase=Running", "02", id="and"),
        pytest.param("metadata.name=none", "", id="nothing"),
    ],
)
async def test_field_selectors_of_pods(api: Api, selector: str, expected: str) -> None:
    await five_pods(api)
    selector = selector.format(node=absent_node())
    listed = await api.get(api.path("pods"), fieldSelector=selector)
    assert names(listed) == [f"p{number}" for number in expected]


@pytest.mark.parametrize(
    "selector",
    [
        "involvedObject.name=p",
        "involvedObject.kind=Pod",
        "involvedObject.uid=u",
        "involvedObject.namespace={ns},involvedObject.name=p,reason=R,type=Normal",
        "source=c",
    ],
)
async def test_field_selectors_of_events(api: Api, selector: str) -> None:
    for name, involved in (("e", "p"), ("f", "q")):
        event = {
            "metadata": {"name": name},
            "involvedObject": {
                "kind": "Pod" if involved == "p" else "Node",
                "name": involved,
                "namespace": api.namespace,
                "uid": "u" if involved == "p" else "v",
            },
            "reason": "R",
            "type": "Normal",
            "source": {"component": "c" if involved == "p" else "d"},
        }
        await api.create("events", event)
    selector = selector.format(ns=api.namespace)
    assert names(await api.get(api.path("events"), fieldSelector=selector)) == ["e"]


async def test_custom_resources_are_selected_by_name(api: Api) -> None:
    for letter in "ab":
        body = node_pod_probe(f"{letter}-{api.unique}")
        body["metadata"]["labels"] = {"contract": api.unique}
        await api.create("nodepodprobes", body)
    name = f"a-{api.unique}"
    selected = await api.get(api.path("nodepodprobes"), fieldSelector=f"metadata.name={name}")
    assert names(selected) == [name]


@pytest.mark.parametrize(
    "query",
    [
        pytest.param({"labelSelector": "a===b"}, id="label-selector"),
        pytest.param({"labelSelector": "a in b"}, id="label-set"),
        pytest.param({"fieldSelector": "spec.nonsense=1"}, id="unknown-field"),
        pytest.param({"fieldSelector": "nonsense"}, id="field-selector"),
        pytest.param({"resourceVersion": "x"}, id="version"),
        pytest.param({"limit": "x"}, id="limit"),
        pytest.param({"continue": "x"}, id="continue-token"),
    ],
)
async def test_a_query_that_cannot_be_read_is_a_bad_request(
    api: Api, query: dict[str, str]
) -> None:
    refused = await api.get(api.path("pods"), **query)
    assert (refused.code, refused.body["reason"]) == (400, "BadRequest")


async def test_pages_show_one_version_of_the_list(api: Api) -> None:
    await five_pods(api)
    path = api.path("pods")
    first = await api.get(path, limit=2)
    assert names(first) == ["p0", "p1"]
    assert first.meta["remainingItemCount"] == 3
    await api.delete(api.path("pods", "p2"), gracePeriodSeconds=0)
    await api.create("pods", pod("p9"))
    await api.merge(api.path("pods", "p3"), {"metadata": {"labels": {"late": "yes"}}})
    second = await api.get(path, limit=2, **{"continue": first.meta["continue"]})
    assert names(second) == ["p2", "p3"]
    assert second.revision == first.revision
    assert "late" not in second.body["items"][1]["metadata"]["labels"]
    third = await api.get(path, limit=2, **{"continue": second.meta["continue"]})
    assert names(third) == ["p4"]
    assert not {"continue", "remainingItemCount"} & third.meta.keys()


async def test_pages_with_a_selector_do_not_count_the_rest(api: Api) -> None:
    await five_pods(api)
    first = await api.get(api.path("pods"), limit=1, labelSelector="app=a")
    assert names(first) == ["p0"]
    assert "remainingItemCount" not in first.meta
    query = {"continue": first.meta["continue"], "limit": 1, "labelSelector": "app=a"}
    assert names(await api.get(api.path("pods"), **query)) == ["p1"]


async def test_a_list_is_not_older_than_the_version_that_was_asked_for(api: Api) -> None:
    created = await api.create("pods", pod("p"))
    for match in ({}, {"resourceVersionMatch": "NotOlderThan"}):
        listed = await api.get(api.path("pods"), resourceVersion=created.revision, **match)
        assert names(listed) == ["p"]
        assert int(listed.revision) >= int(created.revision)
    assert (await api.get(api.path("pods"), resourceVersion=0)).code == 200


async def test_a_list_can_be_asked_at_one_exact_version(api: Api) -> None:
    first = await api.create("pods", pod("p"))
    await api.create("pods", pod("q"))
    listed = await api.get(
        api.path("pods"), resourceVersion=first.revision, resourceVersionMatch="Exact"
    )
    assert names(listed) == ["p"]
    assert listed.revision == first.revision


async def test_a_version_from_the_future_is_too_large(api: Api) -> None:
    refused = await api.get(api.path("pods"), resourceVersion=10**15)
    assert (refused.code, refused.body["reason"]) == (504, "Timeout")
    assert refused.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert refused.body["details"]["retryAfterSeconds"] == 1


@pytest.mark.parametrize(
    "query",
    [
        pytest.param({"resourceVersionMatch": "Exact"}, id="match-without-version"),
        pytest.param({"resourceVersion": "1", "resourceVersionMatch": "X"}, id="unknown-match"),
        pytest.param({"resourceVersion": "0", "resourceVersionMatch": "Exact"}, id="exactly-zero"),
        pytest.param({"sendInitialEvents": "true"}, id="initial-events-of-a-list"),
    ],
)
async def test_options_that_exclude_each_other_are_invalid(api: Api, query: dict[str, str]) -> None:
    refused = await api.get(api.path("pods"), **query)
    assert (refused.code, refused.body["reason"]) == (422, "Invalid")
    assert refused.body["details"]["kind"] == "ListOptions"


async def test_metadata_alone_can_be_asked_for(api: Api) -> None:
    created = await api.create("pods", pod("p"))
    listed = await api.get(api.path("pods"), accept=PARTIAL)
    assert listed.body["kind"] == "PartialObjectMetadataList"
    (item,) = listed.body["items"]
    assert item["metadata"] == created.meta
    assert "spec" not in item


async def test_accept_lists_are_taken_in_order(api: Api) -> None:
    accept = "application/vnd.unheard-of, application/json"
    assert (await api.get(api.path("pods"), accept=accept)).body["kind"] == "PodList"


BAD_SELECTORS = [
    "-a=1",
    "a=-b-",
    "a=1,",
    "a in (x",
    "a in x",
    ",a",
    "a,,b",
    "=1",
    "a b",
    "/c",
    "a.b/=1",
    "a=b=c",
    "a>x",
    "!",
    "a=1;b",
    "a=(b)",
]


@pytest.mark.parametrize("selector", BAD_SELECTORS)
async def test_malformed_label_selectors_are_bad_requests(api: Api, selector: str) -> None:
    refused = await api.get(api.path("pods"), labelSelector=selector)
    assert (refused.code, refused.body["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    "selector",
    [
        "metadata.name",
        "foo=bar",
        "metadata.name=a=b",
        "metadata.name=\\c",
        " metadata.name=c",
        "=c",
    ],
)
async def test_malformed_field_selectors_are_bad_requests(api: Api, selector: str) -> None:
    refused = await api.get(api.path("pods"), fieldSelector=selector)
    assert (refused.code, refused.body["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    "selector",
    ["", " ", "a=", "a", "!z", "a in (b, c)", "a in ()", "a notin (x),b!=c", "a = b", "a=="],
)
async def test_unusual_label_selectors_are_accepted(api: Api, selector: str) -> None:
    assert (await api.get(api.path("pods"), labelSelector=selector)).code == 200


async def test_a_page_may_be_followed_by_an_empty_one_if_a_selector_selects_nothing_more(
    api: Api,
) -> None:
    for name, labels in (("a", {}), ("b", {"l": "x"}), ("c", {})):
        await api.create("pods", pod(name, labels=labels))
    first = await api.get(api.path("pods"), limit=1, labelSelector="l=x")
    assert (names(first), "remainingItemCount" in first.meta) == (["b"], False)
    query = {"continue": first.meta["continue"], "limit": 1, "labelSelector": "l=x"}
    second = await api.get(api.path("pods"), **query)
    assert (names(second), second.meta.get("continue", "")) == ([], "")
    whole = await api.get(api.path("pods"), limit=2, labelSelector="l=x")
    assert (names(whole), whole.meta.get("continue", "")) == (["b"], "")
    single = await api.get(api.path("pods"), limit=1, fieldSelector="metadata.name=b")
    assert (names(single), single.meta.get("continue", "")) == (["b"], "")


@pytest.mark.parametrize(
    ("bound", "code"),
    [
        pytest.param("9223372036854775807", 200, id="largest"),
        pytest.param("9223372036854775808", 400, id="too-large"),
        pytest.param("9" * 5000, 400, id="5000-digits"),
        pytest.param("\u0663", 400, id="not-ascii"),
    ],
)
async def test_a_bound_of_a_selector_is_a_number_of_64_bits(
    api: Api, bound: str, code: int
) -> None:
    assert (await api.get(api.path("pods"), labelSelector=f"a>{bound}")).code == code


async def test_a_list_of_the_cache_ignores_the_limit(api: Api) -> None:
    await api.create("secrets", {"metadata": {"name": "a"}})
    newest = await api.create("secrets", {"metadata": {"name": "b"}})
    await api.get(api.path("secrets"), resourceVersion=newest.revision)  # the cache has both
    listed = await api.get(api.path("secrets"), limit=1, resourceVersion=0)
    assert [each["metadata"]["name"] for each in listed.body["items"]] == ["a", "b"]
    assert "continue" not in listed.meta


async def test_a_next_page_has_no_version_of_its_own(api: Api) -> None:
    for name in ("a", "b"):
        await api.create("secrets", {"metadata": {"name": name}})
    first = await api.get(api.path("secrets"), limit=1)
    token = {"limit": 1, "continue": first.meta["continue"]}
    codes = {
        version: (await api.get(api.path("secrets"), resourceVersion=version, **token)).code
        for version in ("", "0", "1")
    }
    assert codes == {"": 200, "0": 200, "1": 400}
