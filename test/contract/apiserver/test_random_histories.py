"""Random histories of requests to both servers: every answer and every watch event is the same.

A difference shrinks to the shortest history that has it. The lane sends the same histories each time.
KRUISE_PROBE_HISTORY_REQUESTS is another number of requests; these are new ones each time.
"""

import asyncio
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from contract.contract_api import (
    DEFINITIONS,
    Api,
    ServerAddress,
    WatchStream,
    marker,
    node_pod_probe,
    pod,
)
from contract.contract_rows import compared, normalised
from contract.histories import HistoryClient
from contract.history_steps import CLUSTER_SCOPED, SENTINELS, HistoryMaker, HistoryStep
from support.api_server import ApiServer
from support.shrinking import shrink
from support.wire import Json

from kruise_probe.manifests.crds import all_crds

IN_THE_LANE = 400
REQUESTS = int(os.environ.get("KRUISE_PROBE_HISTORY_REQUESTS", IN_THE_LANE))
SELECTORS = ("", "l=x", "!l", "l!=x")


@dataclass
class Servers:
    """The servers that are compared, in an event loop of their own."""

    loop: asyncio.Runner
    session: aiohttp.ClientSession
    addresses: list[ServerAddress]

    def differences(self, history: Sequence[HistoryStep]) -> list[str]:
        return self.loop.run(_run(self, history))

    async def clients(self) -> list[HistoryClient]:
        """A client of each server, each with its own namespace."""
        apis = [Api(self.session, address) for address in self.addresses]
        return [HistoryClient(api, await api.begin_namespace()) for api in apis]


@pytest.fixture(scope="module")
def servers(real_server: ServerAddress) -> Iterator[Servers]:
    stack = AsyncExitStack()
    with asyncio.Runner() as loop:
        server = loop.run(stack.enter_async_context(ApiServer()))
        session = loop.run(_new_session(stack))
        embedded = ServerAddress(server.url, Path())
        api = Api(session, real_server)
        for crd in all_crds():
            loop.run(api.post(DEFINITIONS, crd))
        yield Servers(loop, session, [real_server, embedded])
        loop.run(stack.aclose())


async def _new_session(stack: AsyncExitStack) -> aiohttp.ClientSession:
    return await stack.enter_async_context(aiohttp.ClientSession())


async def _run(servers: Servers, history: Sequence[HistoryStep]) -> list[str]:
    """The differences that no controller of the real cluster has made."""
    clients = await servers.clients()
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
    kinds = sorted({step.kind for step in history})
    async with AsyncExitStack() as stack:
        watches = [await _watches(stack, client, kinds) for client in clients]
        for number, step in enumerate(history):
            real, embedded = [await client.send(step) for client in clients]
            if found := compared(real, embedded):
                return [f"step {number}: {step}", *found]
        for client, kind in product(clients, kinds):
            for number, labels in enumerate(SENTINELS):
                body = {**LEAST[kind], "metadata": {"labels": labels}}
                await client.send(HistoryStep("create", kind, f"zz{number}", body))
        for selected in watches[0]:
            real, embedded = [
                await _heard(client, opened[selected])
                for client, opened in zip(clients, watches, strict=True)
            ]
            if found := compared(real, embedded):
                return [f"watch of {selected}", *found]
        return []


async def _watches(
    stack: AsyncExitStack, client: HistoryClient, kinds: Sequence[str]
) -> dict[str, WatchStream]:
    """Watches of each kind with each selector."""
    opened = {}
    for kind in kinds:
        path = client.path(kind)
        listed = await client.api.get(path, limit=1)
        for labels in SELECTORS:
            stream = client.api.watch(
                path,
                resourceVersion=listed.revision,
                labelSelector=client.selector(kind, labels),
            )
            opened[f"{kind} {labels}"] = await stack.enter_async_context(stream)
    return opened


async def _heard(client: HistoryClient, stream: WatchStream) -> Json:
    """The events of a watch until that of a sentinel, which is created last."""
    names: list[str] = []
    objects: list[Json] = []
    while True:
        event = await stream.next()
        if event["type"] == "ERROR" or "zz" in event["object"]["metadata"]["name"]:
            return {"names": names, "objects": objects}
        found = normalised(event["object"], client.api)
        names.append(f"{event['type']} {found['metadata']['name']}")
        objects.append(found)


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


def test_random_histories_have_the_same_answers(servers: Servers, real_minor_version: int) -> None:
    if real_minor_version < 33:
        pytest.xfail("pods have no generation (KEP-5067)")
    seed = 0 if REQUESTS == IN_THE_LANE else secrets.randbelow(2**32)
    sent = 0
    while sent < REQUESTS:
        history = HistoryMaker(seed).history()
        if servers.differences(history):
            smallest = shrink(
                history,
                lambda steps: bool(servers.differences(steps)),
            )
            lines = [*map(str, smallest), *servers.differences(smallest)]
            raise AssertionError("\n".join(lines))
        seed += 1
        sent += len(history)
