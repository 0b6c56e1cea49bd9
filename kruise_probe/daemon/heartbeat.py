"""The heartbeat of this node's daemon: renews a Lease and never releases it.

Results are stale for the manager once the Lease has expired. The Lease is not released at shutdown, so results do not
become stale while the daemon is replaced. Its owner is the Node, so it is deleted with the Node.

Source: kubelet pkg/kubelet via component-helpers apimachinery/lease/controller.go.
Differs: sends a merge patch without resourceVersion instead of get and update. The Lease is separate from kubelet's.
The Node's owner reference is copied from the NodePodProbe, because the daemon may not read Nodes.
"""

import asyncio
import random
from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec
import structlog

from kruise_probe.api.core import LeaseSpec
from kruise_probe.api.errors import AlreadyExists, Forbidden, KubeError, NotFound
from kruise_probe.api.meta import NamespacedName, ObjectMeta, OwnerReference
from kruise_probe.api.names import daemon_lease_name
from kruise_probe.api.resources import LEASES
from kruise_probe.api.times import format_micro_time
from kruise_probe.client.request import PatchType
from kruise_probe.client.rest import RestClient
from kruise_probe.daemon import metrics

LEASE_SECONDS: Final = 60
RENEW_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 2.0
"""Delay after a failure; up to twice as long, so that daemons do not retry together."""
DEADLINE_SECONDS: Final = 8.0
"""Timeout of one renewal."""


class Heartbeat:
    """Renews the Lease of `node_name` every `RENEW_SECONDS` while `run` runs."""

    def __init__(
        self,
        *,
        client: RestClient,
        node_name: str,
        system_namespace: str,
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._node_name = node_name
        self._key = NamespacedName(system_namespace, daemon_lease_name(node_name))
        self._now = now
        self._log = structlog.get_logger().bind(lease=str(self._key))
        self._failures = 0
        self._owner: OwnerReference | None = None
        self._refused_owner: OwnerReference | None = None

    def observe(self, node_pod_probe: ObjectMeta) -> None:
        """Make the Node that owns this node's NodePodProbe the owner of the Lease, from the next renewal on.

        It stays the owner until the next call. A Lease of a deleted Node is garbage-collected however often it is
        renewed.
        """
        for owner in node_pod_probe.owner_references or ():
            if owner.is_node and owner.name == self._node_name:
                self._owner = owner

    async def run(self) -> None:
        """Renew until cancelled; retry a failure after `RETRY_SECONDS` to twice that."""
        loop = asyncio.get_running_loop()
        renew_at = loop.time()
        while True:
            try:
                async with asyncio.timeout(DEADLINE_SECONDS):
                    await self._renew()
            except (KubeError, TimeoutError) as error:
                self._record_failure(error)
                renew_at = loop.time() + RETRY_SECONDS * random.uniform(1.0, 2.0)
            else:
                if self._failures:
                    self._log.info("lease is renewed again", failures=self._failures)
                    self._failures = 0
                # From the time of the last renewal, so that slow responses do not add up.
                renew_at = max(renew_at + RENEW_SECONDS, loop.time())
            await asyncio.sleep(renew_at - loop.time())

    async def _renew(self) -> None:
        try:
            await self._patch()
        except NotFound:
            try:
                await self._create()
            except AlreadyExists:
                await self._patch()

    async def _patch(self) -> None:
        owner = self._owner if self._owner != self._refused_owner else None
        renewal: dict[str, object] = {"spec": self._spec()}
        if owner is not None:
            renewal["metadata"] = {"ownerReferences": [owner]}
        body = msgspec.json.encode(renewal)
        try:
            await self._client.patch(LEASES, self._key, body, patch_type=PatchType.MERGE)
        except Forbidden as error:
            if owner is None:
                raise
            # The admission plugin OwnerReferencesPermissionEnforcement requires the right to delete. Renew without
            # owner: an expired Lease would make results stale.
            self._refused_owner = owner
            self._log.warning(
                "lease has no owner reference, so it stays when its Node is deleted; allow the daemon to set owner references",
                error=str(error),
            )
            await self._patch()

    async def _create(self) -> None:
        owners = None if self._owner is None else (self._owner,)
        metadata = ObjectMeta(
            name=self._key.name, namespace=self._key.namespace, owner_references=owners
        )
        body = LEASES.encode(metadata=metadata, spec=self._spec())
        await self._client.create(LEASES, body, namespace=self._key.namespace)

    def _spec(self) -> LeaseSpec:
        return LeaseSpec(
            holder_identity=self._node_name,
            lease_duration_seconds=LEASE_SECONDS,
            renew_time=format_micro_time(self._now()),
        )

    def _record_failure(self, error: Exception) -> None:
        self._failures += 1
        metrics.HEARTBEAT_FAILURES.inc()
        if self._failures == 1:
            self._log.warning(
                "lease could not be renewed; results are stale when it has expired",
                lease_seconds=LEASE_SECONDS,
                error=str(error) or type(error).__name__,
            )
