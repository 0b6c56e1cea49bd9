"""Random histories of requests to both servers: every answer and every watch event is the same.

A difference shrinks to the shortest history that has it. The lane sends the same histories each time.
KRUISE_PROBE_HISTORY_REQUESTS is another number of requests; these are new ones each time.
"""

import asyncio
import json
import os
import secrets
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import product
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from contract.contract_api import Api, ServerAddress, marker, node_pod_probe, pod
from contract.contract_rows import compared, normalised
from contract.histories import HistoryClient
from contract.history_steps import CLUSTER_SCOPED, SENTINELS, HistoryMaker, HistoryStep
from support.api_server import ApiServer
from support.shrinking import shrink

from kruise_probe.manifests.crds import all_crds

IN_THE_LANE = 400
REQUESTS = int(os.environ.get("KRUISE_PROBE_HISTORY_REQUESTS", IN_THE_LANE))
SELECTORS = ("", "l=x", "!l", "l!=x")


@pytest.fixture(scope="module")
def runner(real_server: ServerAddress) -> Any:
    with asyncio.Runner() as runner:
        stack, real, embedded = runner.run(_open(real_server))
        yield runner, real, embedded
        runner.run(stack.aclose())


async def _open(real: ServerAddress) -> tuple[AsyncExitStack, Any, Any]:
    stack = AsyncExitStack()
    server = await stack.enter_async_context(ApiServer())
    session = await stack.enter_async_context(aiohttp.ClientSession())
    api = Api(session, real)
    for crd in all_crds():
        await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    return stack, (session, real), (session, ServerAddress(server.url, Path()))


async def _begin(session: aiohttp.ClientSession, target: ServerAddress) -> HistoryClient:
    """A client in a namespace of its own."""
    api = Api(session, target)
    return HistoryClient(api, await api.begin_namespace())


async def _run(real: Any, embedded: Any, history: Sequence[HistoryStep]) -> list[str]:
    """The differences that no controller of the real cluster has made."""
    clients = [await _begin(*each) for each in (real, embedded)]
    try:
        found = await _compare(clients, history)
        return [] if found and await _has_pods_of_controllers(clients[0]) else found
    finally:
        for client in clients:
            await _end(client)


async def _has_pods_of_controllers(real: HistoryClient) -> bool:
    """Whether Kubernetes has written to a pod: every 20 s podgc fails the deleted pods that have no Node."""
    path = real.api.path("pods")
    async with real.api.watch(path, resourceVersion=real.since, timeoutSeconds=1) as stream:
        return "kube-controller-manager" in json.dumps(await stream.rest())


async def _compare(clients: Sequence[HistoryClient], history: Sequence[HistoryStep]) -> list[str]:
    async with AsyncExitStack() as stack:
        watches = [await _watches(stack, client, history) for client in clients]
        for number, step in enumerate(history):
            answers = [await client.send(step) for client in clients]
            if found := compared(answers[0], answers[1]):
                return [f"step {number}: {step}", *found]
        for client, kind in product(clients, sorted({each.kind for each in history})):
            for number, labels in enumerate(SENTINELS):
                body = {**LEAST[kind], "metadata": {"labels": labels}}
                await client.send(HistoryStep("create", kind, f"zz{number}", body))
        heard = [
            [await _heard(client, each) for each in some]
            for client, some in zip(clients, watches, strict=True)
        ]
        for real_watch, embedded_watch in zip(*heard, strict=True):
            if found := compared(real_watch, embedded_watch):
                return [f"watch of {real_watch['of']}", *found]
        return []


async def _watches(
    stack: AsyncExitStack, client: HistoryClient, history: Sequence[HistoryStep]
) -> list[Any]:
    opened = []
    for kind in sorted({each.kind for each in history}):
        path = client.path(kind)
        listed = await client.api.get(path, limit=1)
        for selector in SELECTORS:
            own = f"contract={client.api.unique}" if kind in CLUSTER_SCOPED else ""
            query = {"labelSelector": ",".join(filter(None, (own, selector)))}
            stream = client.api.watch(path, resourceVersion=listed.revision, **query)
            opened.append((kind, selector, await stack.enter_async_context(stream)))
    return opened


async def _heard(client: HistoryClient, watch: Any) -> Any:
    """The events of a watch until that of a sentinel, which is created last."""
    kind, selector, stream = watch
    events = []
    while True:
        event = await stream.next()
        if event["type"] == "ERROR" or "zz" in event["object"]["metadata"]["name"]:
            break
        events.append([event["type"], normalised(event["object"], client.api)])
    order = [f"{each} {obj['metadata']['name']}" for each, obj in events]
    return {"of": f"{kind} {selector}", "and order": order, "events": events}


LEAST: dict[str, dict[str, Any]] = {
    "pods": pod(node=""),
    "leases": {},
    "events": {"involvedObject": {"namespace": "{ns}"}},
    "podprobemarkers": marker(),
    "nodepodprobes": node_pod_probe(""),
}
"""Valid objects, without what their metadata needs."""


async def _end(client: HistoryClient) -> None:
    api = client.api
    for path, bodies in client.seen.items():
        if bodies[-1]["metadata"].get("finalizers"):
            await api.merge(path, {"metadata": {"finalizers": None}})
    await api.delete(api.path("pods"), gracePeriodSeconds=0)
    await api.end_namespace()
    # By name: a patch may have removed the label, and the pages of later histories would count what is left.
    for path in client.seen:
        if any(f"/{resource}/" in path for resource in CLUSTER_SCOPED):
            await api.delete(path)


def test_random_histories_have_the_same_answers(runner: Any, real_minor_version: int) -> None:
    if real_minor_version < 33:
        pytest.xfail("pods have no generation (KEP-5067)")
    loop, real, embedded = runner

    def differences(history: Sequence[HistoryStep]) -> list[str]:
        found: list[str] = loop.run(_run(real, embedded, history))
        return found

    seed, sent = (0 if REQUESTS == IN_THE_LANE else secrets.randbelow(2**32)), 0
    while sent < REQUESTS:
        history = HistoryMaker(seed).history()
        if differences(history):
            smallest = shrink(history, lambda steps: bool(differences(steps)))
            raise AssertionError("\n".join([*map(str, smallest), *differences(smallest)]))
        seed, sent = seed + 1, sent + len(history)
