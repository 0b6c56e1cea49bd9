"""Keeps as many pods as each Fleet wants."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

import httpx
import kr8s
from kr8s.asyncio.objects import APIObject, Pod

LABEL = "example.com/fleet"
ERRORS = (kr8s.ServerError, kr8s.APITimeoutError, httpx.HTTPError)

Key = tuple[str, str]


async def reconcile(api: kr8s.asyncio.Api, fleet: APIObject) -> None:
    # From the server, as it has the pods that this program has just created.
    pods = api.get("pods", namespace=fleet.namespace, label_selector={LABEL: fleet.name})
    owned = [pod async for pod in pods if "deletionTimestamp" not in pod.metadata]
    replicas = fleet.spec.get("replicas", 1)
    for _ in range(len(owned), replicas):
        await (await Pod(pod_of(fleet))).create()
    for pod in owned[replicas:]:
        with suppress(kr8s.NotFoundError):
            await pod.delete()
    if fleet.raw.get("status", {}).get("replicas") != replicas:
        await fleet.patch({"status": {"replicas": replicas}}, subresource="status")


def pod_of(fleet: APIObject) -> dict[str, object]:
    owner = {
        "apiVersion": fleet.version,
        "kind": fleet.kind,
        "name": fleet.name,
        "uid": fleet.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = {
        "generateName": f"{fleet.name}-",
        "namespace": fleet.namespace,
        "labels": {LABEL: fleet.name},
        "ownerReferences": [owner],
    }
    main = {"name": "main", "image": fleet.spec.get("image", "")}
    return {"metadata": metadata, "spec": {"containers": [main]}}


async def main() -> None:
    api = await kr8s.asyncio.api()
    fleets: dict[Key, APIObject] = {}
    dirty: asyncio.Queue[Key] = asyncio.Queue()
    queued: set[Key] = set()

    def enqueue(key: Key) -> None:
        if key not in queued:
            queued.add(key)
            dirty.put_nowait(key)

    def fleet_changed(event: str, fleet: APIObject) -> None:
        key = fleet.namespace, fleet.name
        if event == "DELETED":
            fleets.pop(key, None)
        else:
            fleets[key] = fleet
            enqueue(key)

    def pod_changed(event: str, pod: APIObject) -> None:
        enqueue((pod.namespace, pod.labels[LABEL]))

    async def follow(kind: str, changed: Callable[[str, APIObject], None], label: str = "") -> None:
        while True:
            try:
                if fleets:  # a watch does not report what was deleted before it
                    found = api.get("fleets.example.com", namespace=kr8s.ALL)
                    live = {(fleet.namespace, fleet.name) async for fleet in found}
                    for key in fleets.keys() - live:
                        del fleets[key]
                    for key in fleets:
                        enqueue(key)
                watch = api.watch(kind, namespace=kr8s.ALL, label_selector=label or None)
                async for event, obj in watch:
                    changed(event, obj)
            except ERRORS as error:
                logging.warning("The watch of %s starts again: %s", kind, error)
            await asyncio.sleep(5)

    async def work() -> None:
        while True:
            key = await dirty.get()
            queued.discard(key)
            fleet = fleets.get(key)
            if fleet is None or "deletionTimestamp" in fleet.metadata:
                continue
            try:
                await reconcile(api, fleet)
            except kr8s.NotFoundError:
                fleets.pop(key, None)
            except ERRORS as error:
                logging.warning("%s is reconciled again: %s", key, error)
                asyncio.get_running_loop().call_later(5, enqueue, key)

    async with asyncio.TaskGroup() as group:
        group.create_task(follow("fleets.example.com", fleet_changed))
        group.create_task(follow("pods", pod_changed, LABEL))
        group.create_task(work())


asyncio.run(main())
