"""The heartbeat of this node's daemon: renews a Lease and never releases it.

Results are stale for the manager after 60 s without a sign of life: a renewal, or a write of the node's status. The Lease is
not released at shutdown, so results do not become stale while the daemon is replaced. Its owner is the Node, so it is
deleted with the Node.

A daemon without entries has no results. It renews once, for `IDLE_LEASE_SECONDS`, and then waits for an entry. It renews as
soon as there is one: until then, managers of earlier versions would not notice that it ends.

The holder of the Lease is this process. A renewal is refused if somebody else wrote the Lease since the last one, so the
daemon notices a second daemon with the name of its node, and renews all the same.

Source: kubelet pkg/kubelet via component-helpers apimachinery/lease/controller.go.
Differs: sends a merge patch instead of get and update, and fewer of them. The Lease is separate from kubelet's.
The Node's owner reference is copied from the NodePodProbe, because the daemon may not read Nodes.
"""

import asyncio
import math
import random
import secrets
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec
import structlog

from kruise_probe.api.core import Lease, LeaseSpec
from kruise_probe.api.errors import Conflict, Forbidden, KubeError, NotFound
from kruise_probe.api.meta import NamespacedName, ObjectMeta, OwnerReference
from kruise_probe.api.names import daemon_lease_name
from kruise_probe.api.node_pod_probe import NodePodProbe
from kruise_probe.api.resources import LEASES
from kruise_probe.api.times import CLOCK_SLACK_SECONDS, format_micro_time, loop_time, parse_time
from kruise_probe.client.request import PatchType
from kruise_probe.client.rest import RestClient
from kruise_probe.daemon import metrics

LEASE_SECONDS: Final = 60
IDLE_LEASE_SECONDS: Final = 10 * 365 * 86_400
"""Duration of a Lease that is not renewed: `explain`, and managers of earlier versions, read when a Lease expires."""
RENEW_SECONDS: Final = 20.0
"""Default and longest delay of a renewal after the last sign of life."""
RETRY_SECONDS: Final = 2.0
"""Delay after a failure; up to twice as long, so that daemons do not retry together."""
DEADLINE_SECONDS: Final = 8.0
"""Timeout of one renewal."""
OWNER_RETRY_SECONDS: Final = 600.0
"""After the API server refused the owner of the Lease, the daemon tries to write it again."""
FOREIGN_RENEWALS: Final = 2
"""After so many renewals by the same other process, two daemons run. In a rolling update one sees at most one of the other."""


class Heartbeat:
    """Renews the Lease of `node_name` while `run` runs, `renew_seconds` after each sign of life.

    After two of these intervals it renews even if the status is written all the time, so the Lease never expires.
    """

    def __init__(
        self,
        *,
        client: RestClient,
        node_name: str,
        system_namespace: str,
        renew_seconds: float,
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._node_name = node_name
        self._key = NamespacedName(system_namespace, daemon_lease_name(node_name))
        self._renew_seconds = renew_seconds
        self._now = now
        self._log = structlog.get_logger().bind(lease=str(self._key))
        self._failures = 0
        self._has_entries = asyncio.Event()
        # Loop times.
        self._sign_at = -math.inf
        self._renewed_at = -math.inf
        self._holder = f"{node_name}_{secrets.token_hex(4)}"
        self._lease = Lease(ObjectMeta())
        """As the API server stored it; empty before the first renewal."""
        self._foreign_renewals: Counter[str] = Counter()
        self._owner: OwnerReference | None = None
        self._owner_retry_at = -math.inf

    def observe(self, newest: NodePodProbe | None) -> None:
        """Handle the newest object of the watch, None if it was deleted: whether it has entries, and its owner.

        The Node that owns it owns the Lease from the next renewal on, until another does. A Lease of a deleted Node is
        garbage-collected however often it is renewed.
        """
        if newest is not None and newest.spec.pod_probes:
            self._has_entries.set()
        else:
            self._has_entries.clear()
        if newest is None:
            return
        for owner in newest.metadata.owner_references:
            if owner.is_node and owner.name == self._node_name:
                self._owner = owner

    def record_status_write(self) -> None:
        """Record a write of the node's status, which is a sign of life."""
        self._sign_at = loop_time()

    async def last_renewal(self) -> datetime | None:
        """When the previous daemon renewed the Lease; None if there is none, or if it cannot be read in time."""
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                # The daemon may patch its Lease but not read it. An empty patch changes nothing.
                lease = await self._client.patch(
                    LEASES, self._key, b"{}", patch_type=PatchType.MERGE
                )
        except NotFound:
            return None
        except (KubeError, TimeoutError) as error:
            self._log.warning(
                "lease could not be read; the time since the last renewal is unknown",
                error=str(error) or type(error).__name__,
            )
            return None
        return parse_time(lease.spec.renew_time)

    async def run(self) -> None:
        """Renew until cancelled; retry a failure after `RETRY_SECONDS` to twice that."""
        while True:
            if self._lease.spec.lease_duration_seconds == IDLE_LEASE_SECONDS:
                await self._has_entries.wait()
            elif (wait := self._seconds_left()) > CLOCK_SLACK_SECONDS:
                await asyncio.sleep(wait)
                continue
            # The time of the request, so that slow responses do not add up.
            at = loop_time()
            try:
                async with asyncio.timeout(DEADLINE_SECONDS):
                    await self._renew()
            except (KubeError, TimeoutError) as error:
                self._record_failure(error)
                await asyncio.sleep(RETRY_SECONDS * random.uniform(1.0, 2.0))
                continue
            self._renewed_at = at
            if self._failures:
                self._log.info("lease is renewed again", failures=self._failures)
                self._failures = 0

    def _seconds_left(self) -> float:
        """Seconds until the next renewal."""
        sign_at = max(self._sign_at, self._renewed_at)
        after_sign = sign_at + self._renew_seconds
        at_the_latest = self._renewed_at + 2 * self._renew_seconds
        due = min(after_sign, at_the_latest)
        return due - loop_time()

    async def _renew(self) -> None:
        try:
            await self._patch()
        except NotFound:
            await self._create()

    async def _patch(self) -> None:
        now = loop_time()
        owner = self._owner
        if owner is None or now < self._owner_retry_at:
            await self._patch_with(None)
            return
        try:
            await self._patch_with(owner)
        except Forbidden as error:
            # The admission plugin OwnerReferencesPermissionEnforcement requires the right to delete. Renew without
            # owner: an expired Lease would make results stale. If that is refused too, the owner is not the cause.
            await self._patch_with(None)
            self._owner_retry_at = now + OWNER_RETRY_SECONDS
            self._log.warning(
                "lease has no owner reference, because the API server refuses it; until it accepts one, the lease stays when "
                "its Node is deleted",
                error=str(error),
                retry_seconds=OWNER_RETRY_SECONDS,
            )

    async def _patch_with(self, owner: OwnerReference | None) -> None:
        """Renew; if the Lease was written since the last renewal, find out by whom, and renew the newest version."""
        try:
            await self._send(owner)
        except Conflict:
            lease = await self._send_patch({})
            self._record_foreign_renewal(lease)
            self._lease = lease
            await self._send(owner)

    async def _send(self, owner: OwnerReference | None) -> None:
        metadata: dict[str, object] = {}
        if owner is not None:
            metadata["ownerReferences"] = [owner]
        if self._lease.resource_version:
            metadata["resourceVersion"] = self._lease.resource_version
        self._lease = await self._send_patch({"metadata": metadata, "spec": self._spec()})

    async def _send_patch(self, patch: dict[str, object]) -> Lease:
        """Patch the Lease, and return it. The daemon may not read it; an empty patch changes nothing."""
        body = msgspec.json.encode(patch)
        return await self._client.patch(LEASES, self._key, body, patch_type=PatchType.MERGE)

    def _record_foreign_renewal(self, lease: Lease) -> None:
        other = lease.holder
        if other in ("", self._holder):
            return  # The response to our last renewal was lost, or somebody edited the Lease.
        self._foreign_renewals[other] += 1
        if self._foreign_renewals[other] == FOREIGN_RENEWALS:
            self._log.warning(
                "another daemon renews the lease of this node, so results of both alternate; give each machine its own node "
                "name, or stop one of the daemons",
                node=self._node_name,
                holder=self._holder,
                other=other,
            )

    async def _create(self) -> None:
        owners = () if self._owner is None else (self._owner,)
        metadata = ObjectMeta(
            name=self._key.name, namespace=self._key.namespace, owner_references=owners
        )
        body = LEASES.encode(metadata=metadata, spec=self._spec())
        self._lease = await self._client.create(LEASES, body, namespace=self._key.namespace)

    def _spec(self) -> LeaseSpec:
        has_entries = self._has_entries.is_set()
        return LeaseSpec(
            holder_identity=self._holder,
            lease_duration_seconds=LEASE_SECONDS if has_entries else IDLE_LEASE_SECONDS,
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
