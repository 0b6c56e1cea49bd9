"""Makes a folder for each Bucket, and removes it with the Bucket."""

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kopf

ROOT = Path(os.environ["FOLDERS"])


@kopf.on.resume("buckets.example.com")
@kopf.on.create("buckets.example.com")
@kopf.on.update("buckets.example.com")
async def make(body: kopf.Body, uid: str, status: kopf.Status, patch: kopf.Patch, **_: Any) -> None:
    folder = ROOT / uid
    if not folder.exists():
        folder.mkdir(parents=True)
        kopf.event(body, type="Normal", reason="Created", message=f"Created {folder}")
    ready = {"type": "Ready", "status": "True", "reason": "FolderExists", "message": ""}
    patch.status["path"] = str(folder)
    patch.status["conditions"] = set_condition(status.get("conditions", []), ready)


@kopf.on.delete("buckets.example.com")
async def remove(uid: str, **_: Any) -> None:
    shutil.rmtree(ROOT / uid, ignore_errors=True)


def set_condition(conditions: list[Any], new: dict[str, str]) -> list[Any]:
    """The time is that of the last change of the status."""
    old = next((each for each in conditions if each["type"] == new["type"]), {})
    since = old.get("lastTransitionTime") if old.get("status") == new["status"] else None
    stamp = since or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    others = [each for each in conditions if each["type"] != new["type"]]
    return [*others, {**new, "lastTransitionTime": stamp}]
