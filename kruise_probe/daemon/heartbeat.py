"""Shows that this node's daemon lives: renews a Lease, and never gives it up.

The manager calls results stale when the Lease has expired. It is not released at the end, so that a daemon that
is replaced shows nothing. It ends with its Node, which it names as its owner.

Source: kubelet pkg/kubelet via component-helpers apimachinery/lease/controller.go.
Differs: a merge patch without resourceVersion instead of get and update; the Lease is the daemon's own; who its Node
is, the daemon is told, as it may read none.
"""

import asyncio
import random
from collections.abc import Callable
from datetime import datetime
from typing import Final, Protocol, TypeVar

import msgspec
import structlog

from kruise_probe.api.core import Lease, LeaseSpec
from kruise_probe.api.errors import AlreadyExists, Forbidden, KubeError, NotFound
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.meta import ObjectMeta, OwnerReference
from kruise_probe.api.names import agent_lease_name
from kruise_probe.api.resources import LEASES, KubeObject, Resource
from kruise_probe.api.times import format_micro_time
from kruise_probe.client.request import PatchType
from kruise_probe.daemon import metrics

T = TypeVar("T", bound=KubeObject)

LEASE_SECONDS: Final = 60
RENEW_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 2.0
"""After a failure; up to twice as long, so that daemons do not come back together."""
DEADLINE_SECONDS: Final = 8.0
"""Of one request."""


class LeaseClient(Protocol):
    """The two calls to the API server that a heartbeat takes."""

    async def create(self, resource: Resource[T], body: bytes, *, namespace: str = "") -> T: ...

    async def patch(
        self, resource: Resource[T], key: NamespacedName, body: bytes, *, patch_type: PatchType
    ) -> T: ...


class Heartbeat:
    """Renews the Lease of `node_name` every `RENEW_SECONDS` while `run` runs."""

    def __init__(
        self,
        *,
        client: LeaseClient,
        node_name: str,
        system_namespace: str,
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._node_name = node_name
        self._key = NamespacedName(system_namespace, agent_lease_name(node_name))
        self._now = now
        self._log = structlog.get_logger().bind(lease=str(self._key))
        self._failures = 0
        self._owner: OwnerReference | None = None
        self._refused: OwnerReference | None = None
        self._present: tuple[OwnerReference, ...] | None = None
        """Of the Lease, by the API server's newest answer."""

    def owned_by(self, node: OwnerReference) -> None:
        """Takes note of the Node; the Lease names it from the next renewal on.

        It stays the owner until another is told: the Lease of a Node that is gone shall go as often as it is renewed.
        """
        self._owner = node

    async def run(self) -> None:
        """Beats until cancelled; a failure is tried again soon."""
        loop = asyncio.get_running_loop()
        beat_at = loop.time()
        while True:
            if await self._beat():
                # Counted from the beat before, so that slow answers do not add up.
                beat_at = max(beat_at + RENEW_SECONDS, loop.time())
            else:
                beat_at = loop.time() + RETRY_SECONDS * random.uniform(1.0, 2.0)
            await asyncio.sleep(beat_at - loop.time())

    async def _beat(self) -> bool:
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await self._renew()
        except (KubeError, TimeoutError) as error:
            self._failed(error)
            return False
        if self._failures:
            self._log.info("heartbeat is back", failures=self._failures)
            self._failures = 0
        return True

    async def _renew(self) -> None:
        try:
            await self._patch()
        except NotFound:
            try:
                await self._create()
            except AlreadyExists:
                await self._patch()

    async def _patch(self) -> None:
        renewal: dict[str, object] = {"spec": self._spec()}
        owner, owners = self._owner, self._missing_owners()
        if owners is None:
            await self._send(renewal)
            return
        try:
            await self._send({**renewal, "metadata": {"ownerReferences": owners}})
        except Forbidden as error:
            # OwnerReferencesPermissionEnforcement asks for a right to delete; life matters more than tidiness.
            await self._send(renewal)
            self._refused = owner
            self._log.warning(
                "the Lease cannot name its Node, and stays after it", error=str(error)
            )

    async def _send(self, renewal: dict[str, object]) -> None:
        answer = await self._client.patch(
            LEASES, self._key, msgspec.json.encode(renewal), patch_type=PatchType.MERGE
        )
        self._present = answer.metadata.owner_references or ()

    def _missing_owners(self) -> tuple[OwnerReference, ...] | None:
        """The owner references to write; None when they are right, or what they are is not known yet."""
        owner = self._owner
        if owner is None or self._present is None or owner == self._refused:
            return None
        nodes = [each for each in self._present if each.is_node]
        if nodes == [owner]:
            return None
        return (*(each for each in self._present if each not in nodes), owner)

    async def _create(self) -> None:
        owners = None if self._owner is None else (self._owner,)
        metadata = ObjectMeta(
            name=self._key.name, namespace=self._key.namespace, owner_references=owners
        )
        spec = msgspec.structs.replace(self._spec(), acquire_time=self._stamp())
        lease = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            **msgspec.to_builtins(Lease(metadata, spec)),
        }
        answer = await self._client.create(
            LEASES, msgspec.json.encode(lease), namespace=self._key.namespace
        )
        self._present = answer.metadata.owner_references or ()

    def _spec(self) -> LeaseSpec:
        return LeaseSpec(
            holder_identity=self._node_name,
            lease_duration_seconds=LEASE_SECONDS,
            renew_time=self._stamp(),
        )

    def _stamp(self) -> str:
        return format_micro_time(self._now())

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        metrics.HEARTBEAT_FAILURES.inc()
        if self._failures == 1:
            self._log.warning(
                "heartbeat failed; results count as stale after the lease has expired",
                lease_seconds=LEASE_SECONDS,
                error=str(error) or type(error).__name__,
            )
