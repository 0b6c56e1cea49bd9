"""Makes a folder for each Bucket, and removes it with the Bucket."""

import asyncio
import logging
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2 as httpx
from lightkube import ALL_NS, ApiError, AsyncClient
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.core_v1 import EventSource, ObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Event
from lightkube.types import PatchType

ROOT = Path(sys.argv[1])
FINALIZER = "example.com/folder"

Bucket = create_namespaced_resource("example.com", "v1", "Bucket", "buckets")
client = AsyncClient()


async def reconcile(bucket: Any) -> None:
    folder = ROOT / bucket.metadata.uid
    finalizers = bucket.metadata.finalizers or []
    if bucket.metadata.deletionTimestamp:
        shutil.rmtree(folder, ignore_errors=True)
        if FINALIZER in finalizers:
            await set_finalizers(bucket, [each for each in finalizers if each != FINALIZER])
        return
    if FINALIZER not in finalizers:
        await set_finalizers(bucket, [*finalizers, FINALIZER])
    if not folder.exists():
        folder.mkdir(parents=True)
        await record(bucket, "Created", f"Created {folder}")
    old = bucket.status or {}
    ready = {"type": "Ready", "status": "True", "reason": "FolderExists", "message": ""}
    conditions = set_condition(old.get("conditions", []), ready)
    status = {"path": str(folder), "conditions": conditions}
    if status != old:
        await patch(Bucket.Status, bucket, {"status": status})


async def set_finalizers(bucket: Any, finalizers: list[str]) -> None:
    """Fails if the object has changed meanwhile, as a patch replaces the whole list."""
    version = bucket.metadata.resourceVersion
    metadata = {"finalizers": finalizers, "resourceVersion": version}
    await patch(Bucket, bucket, {"metadata": metadata})


async def patch(resource: Any, bucket: Any, change: dict[str, Any]) -> None:
    name, namespace = bucket.metadata.name, bucket.metadata.namespace
    await client.patch(resource, name, change, namespace=namespace, patch_type=PatchType.MERGE)


async def record(bucket: Any, reason: str, message: str) -> None:
    now = datetime.now(UTC)
    name, namespace, uid = (getattr(bucket.metadata, each) for each in ("name", "namespace", "uid"))
    event = Event(
        metadata=ObjectMeta(generateName=f"{name}-", namespace=namespace),
        involvedObject=ObjectReference(
            apiVersion="example.com/v1", kind="Bucket", name=name, namespace=namespace, uid=uid
        ),
        type="Normal",
        reason=reason,
        message=message,
        firstTimestamp=now,
        lastTimestamp=now,
        count=1,
        source=EventSource(component="buckets"),
    )
    await client.create(event)


def set_condition(conditions: list[Any], new: dict[str, str]) -> list[Any]:
    """The time is that of the last change of the status."""
    old = next((each for each in conditions if each["type"] == new["type"]), {})
    since = old.get("lastTransitionTime") if old.get("status") == new["status"] else None
    stamp = since or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    others = [each for each in conditions if each["type"] != new["type"]]
    return [*others, {**new, "lastTransitionTime": stamp}]


async def reconcile_existing(bucket: Any) -> None:
    try:
        await reconcile(bucket)
    except ApiError as error:
        if error.status.code != 404:  # it was deleted meanwhile
            raise


async def main() -> None:
    while True:
        try:
            async for bucket in (found := client.list(Bucket, namespace=ALL_NS)):
                await reconcile_existing(bucket)
            version = found.resourceVersion
            async for event, bucket in client.watch(
                Bucket, namespace=ALL_NS, resource_version=version
            ):
                if event != "DELETED":
                    await reconcile_existing(bucket)
        except httpx.HTTPError as error:
            logging.warning("The next list reconciles all buckets again: %s", error)
        await asyncio.sleep(5)


asyncio.run(main())
