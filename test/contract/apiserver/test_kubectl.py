"""kubectl against the server, as people use it."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from contract.contract_api import Api, marker, pod
from support.kubectl import Kubectl, KubectlError
from support.patience import PATIENCE_SECONDS

Run = Callable[..., Any]


@pytest.fixture
def kubectl(api: Api) -> Run:
    """Runs kubectl in the test's namespace, beside the event loop in which the server may live."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    runner = Kubectl(str(api.target.kubeconfig), namespace=api.namespace)

    async def run(*arguments: str, stdin: Any = None) -> str:
        text = stdin if isinstance(stdin, (str, type(None))) else json.dumps(stdin)
        return await asyncio.to_thread(runner.run, *arguments, stdin=text)

    return run


async def test_apply_creates_changes_and_leaves_alone(api: Api, kubectl: Run) -> None:
    body = pod("p", labels={"app": "a", "old": "x"})
    assert "created" in await kubectl("apply", "-f", "-", stdin=body)
    assert "unchanged" in await kubectl("apply", "-f", "-", stdin=body)
    await api.merge(api.path("pods", "p"), {"metadata": {"labels": {"foreign": "y"}}})
    changed = pod("p", labels={"app": "b"})
    changed["spec"]["containers"][0]["image"] = "j"
    assert "configured" in await kubectl("apply", "-f", "-", stdin=changed)
    after = await api.get(api.path("pods", "p"))
    assert after.meta["labels"] == {"app": "b", "foreign": "y"}
    assert after.body["spec"]["containers"][0]["image"] == "j"
    managers = {each["manager"] for each in after.meta["managedFields"]}
    assert "kubectl-client-side-apply" in managers


async def test_apply_and_edit_of_a_marker(
    api: Api, kubectl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = yaml.safe_dump(marker())
    assert "created" in await kubectl("create", "-f", "-", stdin=text)
    with pytest.raises(KubectlError, match="AlreadyExists"):
        await kubectl("create", "-f", "-", stdin=text)
    await kubectl("apply", "-f", "-", stdin=text)
    assert "unchanged" in await kubectl("apply", "-f", "-", stdin=text)
    monkeypatch.setenv("KUBE_EDITOR", "sed -i s/healthy/lively/")
    assert "edited" in await kubectl("edit", "ppm", "m")
    after = await api.get(api.path("podprobemarkers", "m"))
    assert after.body["spec"]["probes"][0]["name"] == "lively"
    assert "configured" in await kubectl("apply", "-f", "-", stdin=text)
    assert "deleted" in await kubectl("delete", "-f", "-", stdin=text)


async def test_get_prints_tables_by_short_names(api: Api, kubectl: Run) -> None:
    both = {"apiVersion": "v1", "kind": "List", "items": [pod("p"), marker()]}
    await kubectl("apply", "-f", "-", stdin=both)
    shown = await kubectl("get", "po,ppm,npp")
    assert "NAME    READY   STATUS    RESTARTS   AGE" in shown
    assert "pod/p   0/1     Pending   0" in shown
    assert "podprobemarker.apps.kruise.io/m" in shown
    wide = await kubectl("get", "pods", "-o", "wide", "--show-labels")
    assert "READINESS GATES" in wide
    assert "nowhere" in wide


async def test_get_follows_changes(api: Api) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    await api.create("pods", pod("p"))
    process = await asyncio.create_subprocess_exec(
        "kubectl", "--kubeconfig", str(api.target.kubeconfig), "--namespace", api.namespace,
        "get", "pods", "--watch", "--output-watch-events",
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert b"NAME" in await process.stdout.readline()
            line = (await process.stdout.readline()).split()
            assert line[:4] == [b"ADDED", b"p", b"0/1", b"Pending"]
            await api.strategic(api.path("pods", "p") + "/status", {"status": {"phase": "Running"}})
            line = (await process.stdout.readline()).split()
            assert line[:4] == [b"MODIFIED", b"p", b"0/1", b"Running"]
    finally:
        process.terminate()
        await process.wait()


async def test_describe_shows_the_object_and_its_events(api: Api, kubectl: Run) -> None:
    created = await api.create("pods", pod("p", labels={"app": "a"}))
    involved = {"kind": "Pod", "apiVersion": "v1", "name": "p", "namespace": api.namespace}
    at = created.meta["creationTimestamp"]
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {**involved, "uid": created.meta["uid"]},
        **{"reason": "KruiseProbeFailed", "message": "it failed", "type": "Normal", "count": 2},
        **{"firstTimestamp": at, "lastTimestamp": at, "source": {"component": "c"}},
    }
    await api.create("events", event)
    shown = await kubectl("describe", "pod", "p")
    assert "app=a" in shown
    assert "KruiseProbeFailed" in shown
    assert "(x2 over" in shown
    await api.create("podprobemarkers", marker())
    assert "example.com/healthy" in await kubectl("describe", "ppm", "m")


async def test_wait_waits_for_a_condition_and_for_the_end(api: Api, kubectl: Run) -> None:
    await api.create("pods", pod("p"))
    waiting = asyncio.create_task(
        kubectl("wait", "pod/p", "--for=condition=example.com/healthy", "--timeout=60s")
    )
    condition = {"type": "example.com/healthy", "status": "True"}
    await api.strategic(api.path("pods", "p") + "/status", {"status": {"conditions": [condition]}})
    assert "condition met" in await waiting
    assert "deleted" in await kubectl("delete", "pod", "p", "--force", "--grace-period=0")
    await kubectl("wait", "pod/p", "--for=delete", "--timeout=60s")


async def test_delete_waits_for_finalizers_and_selectors(api: Api, kubectl: Run) -> None:
    body = marker("held")
    body["metadata"] |= {"finalizers": ["example.com/held"], "labels": {"app": "a"}}
    await api.create("podprobemarkers", body)
    deleting = asyncio.create_task(kubectl("delete", "ppm", "-l", "app=a"))
    listed = await api.get(api.path("podprobemarkers"))
    async with api.watch(api.path("podprobemarkers"), resourceVersion=listed.revision) as stream:
        if "deletionTimestamp" not in listed.body["items"][0]["metadata"]:
            event = await stream.next()
            assert "deletionTimestamp" in event["object"]["metadata"]
    assert not deleting.done()
    await api.merge(api.path("podprobemarkers", "held"), {"metadata": {"finalizers": None}})
    assert "deleted" in await deleting


async def test_explain_and_api_resources(api: Api, kubectl: Run) -> None:
    assert "podConditionType" in await kubectl("explain", "ppm.spec.probes")
    assert "readinessGates" in await kubectl("explain", "pod.spec")
    shown = await kubectl("api-resources", "--api-group=apps.kruise.io")
    assert "ppm" in shown
    assert "npp" in shown
