"""A fresh manager that only looks: what it would write is what is not yet a function of the objects."""

import asyncio
from typing import Any

from support.running_manager import RecordingRecorder

from kruise_probe.api.errors import KubeError
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.api.resources import Resource
from kruise_probe.api.times import utc_now
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.rest import RestClient
from kruise_probe.controllers.caches import build_informers
from kruise_probe.controllers.product import Options, build_over

LOOK_SECONDS = 5.0
"""Longer than the initial keys are staggered over, and than a marker's status waits for its turn."""


class _Pen:
    """Writes nothing, and keeps what it was given."""

    def __init__(self) -> None:
        self.wanted: list[str] = []

    async def create(self, resource: Resource[Any], body: bytes, *, namespace: str = "") -> Any:
        raise self._noted(f"create {resource.plural}", body)

    async def patch(
        self,
        resource: Resource[Any],
        key: NamespacedName,
        body: bytes,
        *,
        patch_type: object,
        subresource: str = "",
    ) -> Any:
        raise self._noted(f"patch {resource.plural}/{subresource} {key}", body)

    async def delete(self, resource: Resource[Any], key: NamespacedName, *, uid: str = "") -> None:
        raise self._noted(f"delete {resource.plural} {key}", b"")

    def _noted(self, what: str, body: bytes) -> KubeError:
        self.wanted.append(f"{what}: {body.decode()}")
        return KubeError("a witness does not write")


async def what_is_left_to_write(config: ClusterConfig) -> list[str]:
    """What a manager that starts now would write first; empty when all is as it has to be."""
    pen = _Pen()
    client = RestClient(config=config, field_manager="witness", user_agent="witness")
    async with client:
        informers = build_informers(
            client, namespace="", system_namespace=SYSTEM_NAMESPACE, resync_seconds=0
        )
        options = Options(SYSTEM_NAMESPACE)
        product = build_over(informers, pen, RecordingRecorder(), options, now=utc_now)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.run()) for each in product.caches]
            for each in product.caches:
                await each.wait_for_sync()
            tasks += [group.create_task(each.run()) for each in product.controllers]
            await asyncio.sleep(LOOK_SECONDS)
            for task in tasks:
                task.cancel()
    return pen.wanted
