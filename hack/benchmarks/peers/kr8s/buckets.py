"""Makes a folder for each Bucket, and removes it with the Bucket."""

import asyncio
import logging
import shutil
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import kr8s
from kr8s.asyncio.objects import APIObject, Event

ROOT = Path(sys.argv[1])
FINALIZER = "example.com/folder"


async def reconcile(bucket: APIObject) -> None:
    folder = ROOT / bucket.metadata.uid
    finalizers = bucket.metadata.get("finalizers", [])
    if "deletionTimestamp" in bucket.metadata:
        shutil.rmtree(folder, ignore_errors=True)
        if FINALIZER in finalizers:
            left = [each for each in finalizers if each != FINALIZER]
            await patch(bucket, {"metadata": {"finalizers": left}})
        return
    if FINALIZER not in finalizers:
        await patch(bucket, {"metadata": {"finalizers": [*finalizers, FINALIZER]}})
    if not folder.exists():
        folder.mkdir(parents=True)
        await record(bucket, "Created", f"Created {folder}")
    old = bucket.raw.get("status", {})
    ready = {"type": "Ready", "status": "True", "reason": "FolderExists", "message": ""}
    conditions = set_condition(old.get("conditions", []), ready)
    status = {"path": str(folder), "conditions": conditions}
    if status != old:
        await bucket.patch({"status": status}, subresource="status")


async def patch(bucket: APIObject, change: dict[str, Any]) -> None:
    """Fails if the object has changed meanwhile, as a patch replaces the whole list of finalizers."""
    change["metadata"]["resourceVersion"] = bucket.metadata.resourceVersion
    await bucket.patch(change)


async def record(bucket: APIObject, reason: str, message: str) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    names = ("apiVersion", "kind")
    involved = {each: bucket.raw[each] for each in names} | {
        each: bucket.metadata[each] for each in ("namespace", "name", "uid")
    }
    event = await Event(
        {
            "metadata": {"generateName": f"{bucket.name}-", "namespace": bucket.namespace},
            "involvedObject": involved,
            "type": "Normal",
            "reason": reason,
            "message": message,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "source": {"component": "buckets"},
        }
    )
    await event.create()


def set_condition(conditions: list[Any], new: dict[str, str]) -> list[Any]:
    """The time is that of the last change of the status."""
    old = next((each for each in conditions if each["type"] == new["type"]), {})
    since = old.get("lastTransitionTime") if old.get("status") == new["status"] else None
    stamp = since or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    others = [each for each in conditions if each["type"] != new["type"]]
    return [*others, {**new, "lastTransitionTime": stamp}]


async def main() -> None:
    api = await kr8s.asyncio.api()
    while True:
        try:
            async for event, bucket in api.watch("buckets.example.com", namespace=kr8s.ALL):
                if event == "DELETED":
                    continue
                with suppress(kr8s.NotFoundError):  # it was deleted meanwhile
                    await reconcile(bucket)
        except (kr8s.ServerError, kr8s.APITimeoutError, httpx.HTTPError) as error:
            logging.warning("The next watch reconciles all buckets again: %s", error)
        await asyncio.sleep(5)


asyncio.run(main())
