"""The official Python client against the server."""

import asyncio
from typing import Any

import pytest
from kubernetes import client, config, watch
from support.contract_api import Api, pod

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def official(api: Api) -> Any:
    return config.new_client_from_config(str(api.target.kubeconfig))


async def test_pods_are_created_patched_listed_and_deleted(api: Api, official: Any) -> None:
    def work() -> None:
        core: Any = client.CoreV1Api(official)
        created = core.create_namespaced_pod(api.namespace, pod("p", labels={"app": "a"}))
        assert created.metadata.uid
        patch = {"status": {"conditions": [{"type": "example.com/x", "status": "True"}]}}
        patched = core.patch_namespaced_pod_status("p", api.namespace, patch)
        assert patched.status.conditions[0].type == "example.com/x"
        listed = core.list_namespaced_pod(api.namespace, label_selector="app=a", limit=1)
        assert [each.metadata.name for each in listed.items] == ["p"]
        read = core.read_namespaced_pod("p", api.namespace)
        read.metadata.labels["b"] = "c"
        replaced = core.replace_namespaced_pod("p", api.namespace, read)
        assert replaced.metadata.labels == {"app": "a", "b": "c"}
        with pytest.raises(client.ApiException) as refused:
            core.read_namespaced_pod("q", api.namespace)
        assert refused.value.status == 404
        core.delete_namespaced_pod("p", api.namespace, grace_period_seconds=0)

    await asyncio.to_thread(work)
    assert (await api.get(api.path("pods", "p"))).code == 404


async def test_a_watch_yields_events(api: Api, official: Any) -> None:
    def work() -> list[tuple[str, str]]:
        core: Any = client.CoreV1Api(official)
        core.create_namespaced_pod(api.namespace, pod("a"))
        core.create_namespaced_pod(api.namespace, pod("b"))
        seen: list[tuple[str, str]] = []
        stream: Any = watch.Watch()
        for event in stream.stream(core.list_namespaced_pod, api.namespace, timeout_seconds=240):
            seen.append((event["type"], event["object"].metadata.name))
            if len(seen) == 2:
                core.delete_namespaced_pod("a", api.namespace, grace_period_seconds=0)
            if event["type"] == "DELETED":
                stream.stop()
        return seen

    seen = await asyncio.to_thread(work)
    assert seen[:2] == [("ADDED", "a"), ("ADDED", "b")]
    assert seen[-1] == ("DELETED", "a")
