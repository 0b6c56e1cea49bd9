"""ReplicaSets: what the API server accepts, the scale subresource, and which pods a scale-in deletes."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.contract_api import MERGE, Api
from support.kubectl import status_of
from support.programs import until

COST = "controller.kubernetes.io/pod-deletion-cost"
ROOT = "/apis/apps/v1"

Run = Callable[..., Any]


def replica_set(**spec: Any) -> Any:
    container = {
        "name": "main",
        "image": "kruise-probe-test:busybox",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "1000000"],
    }
    wanted = {
        "selector": {"matchLabels": {"app": "game"}},
        "template": {
            "metadata": {"labels": {"app": "game"}},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
        },
        "replicas": 0,
        **spec,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "game"},
        "spec": wanted,
    }


def path(api: Api, name: str = "game") -> str:
    return f"{ROOT}/namespaces/{api.namespace}/replicasets{name and '/'}{name}"


async def test_defaults_are_set(api: Api) -> None:
    created = await api.post(path(api, ""), replica_set(replicas=None))
    assert created.code == 201, created
    spec = created.body["spec"]
    assert (spec["replicas"], created.meta["generation"]) == (1, 1)
    assert created.body["status"] == {"replicas": 0}
    template = spec["template"]["spec"]
    assert (template["restartPolicy"], template["dnsPolicy"]) == ("Always", "ClusterFirst")
    assert "enableServiceLinks" not in template
    assert template["containers"][0]["terminationMessagePolicy"] == "File"


OTHER = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({"replicas": -1}, "spec.replicas: Invalid value: -1: must be greater than or equal to 0", id="negative"),
        pytest.param({"selector": {}}, "spec.selector: Invalid value: {}: empty selector is invalid for deployment", id="empty-selector"),
        pytest.param({"template": OTHER}, 'spec.template.metadata.labels: Invalid value: {"app":"x"}: `selector` does not match template `labels`', id="other-labels"),
    ],
)  # fmt: skip
async def test_an_invalid_replica_set_is_refused(api: Api, spec: Any, message: str) -> None:
    refused = await api.post(path(api, ""), replica_set(**spec))
    assert refused.code == 422
    assert message in refused.body["message"]


async def test_the_selector_is_immutable(api: Api) -> None:
    assert (await api.post(path(api, ""), replica_set())).code == 201
    change = {"spec": {"selector": {"matchLabels": {"app": "x"}}, "template": OTHER}}
    refused = await api.merge(path(api), change)
    assert refused.code == 422
    assert "spec.selector: Invalid value" in refused.body["message"]
    assert "field is immutable" in refused.body["message"]


async def test_the_scale_subresource_reads_and_changes_replicas(api: Api) -> None:
    created = await api.post(path(api, ""), replica_set())
    scale = await api.get(f"{path(api)}/scale")
    assert (scale.body["kind"], scale.body["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale.meta["uid"] == created.meta["uid"]
    assert scale.body["spec"] == {}
    assert scale.body["status"] == {"replicas": 0, "selector": "app=game"}

    # No controller may create pods here: there is one on some servers only.
    patched = await api.merge(f"{path(api)}/scale", {"spec": {"replicas": 0}})
    assert (patched.code, patched.body["kind"]) == (200, "Scale")
    dry = await api.send(
        "PATCH", f"{path(api)}/scale", {"spec": {"replicas": 7}}, content_type=MERGE, dryRun="All"
    )
    assert dry.body["spec"]["replicas"] == 7
    refused = await api.merge(f"{path(api)}/scale", {"spec": {"replicas": -1}})
    assert refused.code == 422
    assert (
        'Scale.autoscaling "game" is invalid: spec.replicas: Invalid value: -1'
        in refused.body["message"]
    )
    outdated = {**scale.body, "metadata": {**scale.meta, "resourceVersion": "1"}}
    assert (await api.put(f"{path(api)}/scale", outdated)).code == 409
    assert (await api.get(f"{path(api, 'none')}/scale")).code == 404


async def test_discovery_names_the_scale_subresource(api: Api) -> None:
    found = {each["name"]: each for each in (await api.get(ROOT)).body["resources"]}
    assert found["replicasets"]["shortNames"] == ["rs"]
    scale = found["replicasets/scale"]
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")
    assert set(scale["verbs"]) == {"get", "patch", "update"}


async def pods(kubectl: Run) -> list[Any]:
    found: list[Any] = json.loads(await kubectl("get", "pods", "-o", "json"))["items"]
    return [each for each in found if "deletionTimestamp" not in each["metadata"]]


async def scaled(kubectl: Run, replicas: int) -> None:
    await kubectl("scale", "rs", "game", f"--replicas={replicas}")
    await has(kubectl, replicas)


async def has(kubectl: Run, replicas: int) -> None:
    ready = f"jsonpath={{.status.readyReplicas}}={replicas}"
    await kubectl("wait", "rs/game", f"--for={ready}", "--timeout=60s")


async def test_a_scale_in_deletes_the_pods_with_the_lowest_cost(node_kubectl: Run) -> None:
    await node_kubectl(replica_set(replicas=3))
    await has(node_kubectl, 3)
    created = await pods(node_kubectl)
    (owner,) = created[0]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["controller"]) == ("ReplicaSet", True)
    costs = dict(zip((each["metadata"]["name"] for each in created), (5, -10, 10), strict=True))
    for name, cost in costs.items():
        await node_kubectl("annotate", "pod", name, f"{COST}={cost}")

    # A pod without a cost. When the controller has seen it, it has seen the costs of the others too.
    await scaled(node_kubectl, 4)

    for replicas, kept in ((3, [0, 5, 10]), (2, [5, 10]), (1, [10])):
        await scaled(node_kubectl, replicas)
        left = [each["metadata"]["name"] for each in await pods(node_kubectl)]
        assert sorted(costs.get(each, 0) for each in left) == kept
    shown = await node_kubectl("get", "rs", "game")
    assert shown.splitlines()[1].split()[:4] == ["game", "1", "1", "1"]


async def test_a_deleted_pod_is_replaced_until_the_replica_set_is_deleted(
    node_kubectl: Run,
) -> None:
    await node_kubectl(replica_set(replicas=1))
    await has(node_kubectl, 1)
    (first,) = await pods(node_kubectl)
    await node_kubectl("delete", "pod", first["metadata"]["name"])

    async def is_replaced() -> bool:
        found = await pods(node_kubectl)
        uids = {each["metadata"]["uid"] for each in found if status_of(each, "Ready") == "True"}
        return len(found) == 1 and bool(uids - {first["metadata"]["uid"]})

    # The status of the ReplicaSet may still be the one before the deletion.
    await until("another pod is ready", is_replaced)
    await has(node_kubectl, 1)
    await node_kubectl("delete", "rs", "game")
    await node_kubectl("wait", "--for=delete", "pods", "-l", "app=game", "--timeout=60s")
