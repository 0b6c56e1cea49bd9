"""Who may write what: an object and its status are two halves, and generations count only one of them."""

import pytest
from support.contract_api import Api, absent_node, managed, marker, node_pod_probe, pod

CONDITION = {"type": "example.com/healthy", "status": "True"}


async def test_the_object_ignores_status(api: Api) -> None:
    body = {**pod("p"), "status": {"phase": "Running"}}
    assert (await api.create("pods", body)).body["status"]["phase"] == "Pending"
    patched = await api.merge(api.path("pods", "p"), {"status": {"phase": "Running"}})
    assert patched.body["status"]["phase"] == "Pending"


async def test_the_status_of_a_pod_ignores_its_spec(api: Api) -> None:
    await api.create("pods", pod("p"))
    patch = {"spec": {"nodeName": "other"}, "status": {"phase": "Running"}}
    patched = await api.strategic(api.path("pods", "p") + "/status", patch)
    assert patched.code == 200
    assert patched.body["spec"]["nodeName"] == absent_node()
    assert patched.body["status"]["phase"] == "Running"
    assert patched.body["status"]["qosClass"] == "BestEffort"


async def test_the_status_of_a_pod_takes_labels_and_annotations(api: Api) -> None:
    await api.create("pods", pod("p", labels={"app": "a"}))
    patch = {"metadata": {"labels": {"app": None, "x": "y"}, "annotations": {"a": "b"}}}
    patched = await api.strategic(api.path("pods", "p") + "/status", patch)
    assert patched.meta["labels"] == {"x": "y"}
    assert patched.meta["annotations"] == {"a": "b"}


COST = "controller.kubernetes.io/pod-deletion-cost"


@pytest.mark.parametrize("cost", ["0", "-0", "-007", "2147483647", "-2147483648"])
@pytest.mark.parametrize("subresource", ["", "/status"])
async def test_a_pod_takes_integers_as_its_deletion_cost(
    api: Api, cost: str, subresource: str
) -> None:
    await api.create("pods", pod("p"))
    patch = {"metadata": {"annotations": {COST: cost}}}
    patched = await api.strategic(api.path("pods", "p") + subresource, patch)
    assert patched.meta["annotations"] == {COST: cost}


@pytest.mark.parametrize(
    "cost", ["", "low", "+1", "01", "00", "1.0", " 1", "1_0", "-", "2147483648", "-2147483649"]
)
@pytest.mark.parametrize("subresource", ["", "/status"])
async def test_a_pod_takes_nothing_else_as_its_deletion_cost(
    api: Api, cost: str, subresource: str
) -> None:
    await api.create("pods", pod("p"))
    patch = {"metadata": {"annotations": {COST: cost}}, "status": {"conditions": [CONDITION]}}
    refused = await api.strategic(api.path("pods", "p") + subresource, patch)
    assert (refused.code, refused.body["reason"]) == (422, "Invalid"), refused
    field, message = (
        f"metadata.annotations[{COST}]",
        f'Invalid value: "{cost}": must be a 32bit integer',
    )
    assert refused.body["message"] == f'Pod "p" is invalid: {field}: {message}'
    cause = {"reason": "FieldValueInvalid", "message": message, "field": field}
    # A real one looks twice, except at a status.
    assert refused.body["details"]["causes"] in ([cause], [cause, cause])
    created = await api.post(api.path("pods"), pod("q", annotations={COST: cost}))
    assert created.code == 422, created


async def test_the_status_of_a_pod_ignores_owners(api: Api) -> None:
    await api.create("pods", pod("p"))
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}
    patch = {"metadata": {"ownerReferences": [owner]}}
    patched = await api.strategic(api.path("pods", "p") + "/status", patch)
    assert patched.code == 200
    assert "ownerReferences" not in patched.meta


async def test_a_pod_generation_counts_its_spec_only(api: Api) -> None:
    await api.create("pods", pod("p"))
    status = await api.strategic(
        api.path("pods", "p") + "/status", {"status": {"conditions": [CONDITION]}}
    )
    assert status.meta["generation"] == 1
    labelled = await api.merge(api.path("pods", "p"), {"metadata": {"labels": {"a": "b"}}})
    assert labelled.meta["generation"] == 1


async def test_a_condition_of_a_pod_shows_absent_times_as_null(api: Api) -> None:
    await api.create("pods", pod("p"))
    patched = await api.strategic(
        api.path("pods", "p") + "/status", {"status": {"conditions": [CONDITION]}}
    )
    conditions = [
        each for each in patched.body["status"]["conditions"] if each["type"] == CONDITION["type"]
    ]
    assert conditions == [{**CONDITION, "lastProbeTime": None, "lastTransitionTime": None}]


async def test_the_status_of_a_custom_resource_ignores_all_else(api: Api) -> None:
    await api.create("podprobemarkers", marker())
    patch = {
        "metadata": {
            "labels": {"x": "y"},
            "finalizers": ["example.com/f"],
            "annotations": {"a": "b"},
        },
        "spec": {"probes": []},
        "status": {"observedGeneration": 1, "matchedPods": 3},
    }
    patched = await api.merge(api.path("podprobemarkers", "m") + "/status", patch)
    assert patched.code == 200
    assert patched.body["status"] == {"observedGeneration": 1, "matchedPods": 3}
    assert patched.body["spec"] == marker()["spec"]
    assert patched.meta["generation"] == 1
    assert not {"labels", "annotations", "finalizers"} & patched.meta.keys()


async def test_a_custom_resource_ignores_its_status(api: Api) -> None:
    body = {**marker(), "status": {"observedGeneration": 1, "matchedPods": 3}}
    assert "status" not in (await api.create("podprobemarkers", body)).body
    patched = await api.merge(api.path("podprobemarkers", "m"), {"status": {"matchedPods": 3}})
    assert "status" not in patched.body


async def test_a_custom_resource_generation_counts_its_spec_only(api: Api) -> None:
    await api.create("podprobemarkers", marker())
    path = api.path("podprobemarkers", "m")
    labelled = await api.merge(path, {"metadata": {"labels": {"a": "b"}}})
    assert labelled.meta["generation"] == 1
    longer = {**marker()["spec"]["probes"][0], "probe": {"exec": {"command": ["false"]}}}
    changed = await api.merge(path, {"spec": {"probes": [longer]}})
    assert changed.meta["generation"] == 2
    forged = await api.merge(path, {"metadata": {"generation": 77}})
    assert forged.meta["generation"] == 2


async def test_an_empty_status_can_be_taken_back(api: Api) -> None:
    name = f"n-{api.unique}"
    body = node_pod_probe(name)
    body["metadata"]["labels"] = {"contract": api.unique}
    await api.create("nodepodprobes", body)
    path = api.path("nodepodprobes", name)
    states = [{"name": "p", "namespace": "ns", "uid": "u"}]
    set_ = await api.merge(f"{path}/status", {"status": {"podProbeStatuses": states}})
    assert set_.body["status"] == {"podProbeStatuses": states}
    removed = await api.merge(f"{path}/status", {"status": {"podProbeStatuses": None}})
    assert removed.body["status"] == {}
    gone = await api.merge(f"{path}/status", {"status": None})
    assert "status" not in gone.body


async def test_a_node_registers_with_its_status_and_then_keeps_both_apart(api: Api) -> None:
    name = f"n-{api.unique}"
    ready = {"type": "Ready", "status": "True", "reason": "Up", "message": "is up"}
    node = {
        "metadata": {"name": name, "labels": {"contract": api.unique}},
        "spec": {"taints": [{"key": "contract", "effect": "NoSchedule"}]},
        "status": {"conditions": [ready]},
    }
    created = await api.create("nodes", node)
    assert created.body["status"]["conditions"][0]["status"] == "True"
    path = api.path("nodes", name)
    ignored = await api.strategic(path, {"status": {"nodeInfo": {"kubeletVersion": "v0"}}})
    assert ignored.body["status"]["nodeInfo"]["kubeletVersion"] == ""
    info = {"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.9"}]}}
    changed = await api.strategic(f"{path}/status", {**info, "spec": {"unschedulable": True}})
    assert changed.body["status"]["addresses"] == info["status"]["addresses"]
    assert "unschedulable" not in changed.body["spec"]


@pytest.mark.parametrize("method", ["get", "put"])
async def test_status_can_be_read_and_replaced(api: Api, method: str) -> None:
    created = (await api.create("podprobemarkers", marker())).body
    path = api.path("podprobemarkers", "m") + "/status"
    if method == "get":
        assert (await api.get(path)).body == created
    else:
        sent = {**created, "status": {"observedGeneration": 1, "matchedPods": 2}}
        replaced = await api.put(path, sent)
        assert replaced.code == 200
        assert replaced.body["status"]["matchedPods"] == 2


async def test_a_cleared_observed_generation_is_kept(api: Api) -> None:
    await api.create("pods", pod("p"))
    path = api.path("pods", "p") + "/status"
    condition = {**CONDITION, "observedGeneration": 1}
    await api.strategic(path, {"status": {"observedGeneration": 1, "conditions": [condition]}})
    patch = {
        "status": {
            "observedGeneration": None,
            "conditions": [{"type": CONDITION["type"], "observedGeneration": None}],
        }
    }
    patched = await api.strategic(path, patch)
    assert patched.body["status"]["observedGeneration"] == 1
    assert patched.body["status"]["conditions"][0]["observedGeneration"] == 1


async def test_status_writers_are_told_apart_from_writers_of_the_object(api: Api) -> None:
    await api.create("podprobemarkers", marker(), fieldManager="author")
    path = api.path("podprobemarkers", "m") + "/status"
    patched = await api.merge(
        path, {"status": {"matchedPods": 1, "observedGeneration": 1}}, fieldManager="author"
    )
    assert managed(patched.body).keys() == {("author", ""), ("author", "status")}
