"""Writes the results to the status of the node's NodePodProbe: batched, one write at a time.

Source: Kruise pkg/daemon/podprobe/pod_probe_controller.go (processUpdateWorkItem).
Differs: an update that conflicts is sent again as a merge patch without resourceVersion. Changes are batched;
changes of messages alone have a least interval. A failed write is retried with the newest content. Results have the key
pod uid, container and probe. Kruise's key is the container id, so two probes of one container overwrite each other.
"""

import asyncio
import math
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import structlog

from kruise_probe.api.errors import Conflict, Forbidden, KubeError, NotFound, retry_after_seconds
from kruise_probe.api.meta import NamespacedName, ObjectMeta
from kruise_probe.api.names import ProbeKey
from kruise_probe.api.node_pod_probe import (
    ContainerProbeState,
    NodePodProbe,
    NodePodProbeStatus,
    stored_bytes,
)
from kruise_probe.api.resources import NODE_POD_PROBES
from kruise_probe.api.times import CLOCK_SLACK_SECONDS, loop_time
from kruise_probe.client.request import PatchType
from kruise_probe.client.rest import RestClient
from kruise_probe.daemon import metrics
from kruise_probe.daemon.desired import DesiredProbe
from kruise_probe.daemon.status import (
    EncodedStatus,
    differs,
    encode,
    patch_of,
    status_of,
    update_of,
)
from kruise_probe.informers.replica import is_older

GATHER_SECONDS: Final = 0.1
"""Least time between the starts of two writes; changes in between are written together."""

WRITE_DEADLINE_SECONDS: Final = 10.0
"""Deadline of an update, from its last progress on a slow link."""
LAST_WRITE_SECONDS: Final = 2.0
"""Deadline of the write at shutdown."""

FIRST_BACKOFF_SECONDS: Final = 0.25
MAX_BACKOFF_SECONDS: Final = 10.0
"""Results wait at most this long once the API server is back; kubelet retries its node status as often."""

REST_INTERVAL_SECONDS: Final = 15.0
"""Between two rests while the status is written all the time. A rest is a pause that is long enough for a patch of the spec."""
REST_RATIO: Final = 8.0
"""A rest, by the time that the last write took. A merge patch of the spec takes the API server up to four times as long as the update
beside it (620 KB of spec and 100 KB of status). As it may begin just before an update, it needs twice that."""
MAX_PAUSE_SECONDS: Final = 5.0
"""Longest pause after a write. A write over a slow link takes long, but does not hold up the API server."""

REFRESH_STAGGER: Final = 0.05
"""Jitter: a refresh is up to this share of its interval late, so that nodes that started together drift apart."""

FIRST_REFRESH_SECONDS: Final = 60.0
"""Delay of the first refresh after a start, as the last daemon may have written long ago. Probes run first."""


class Reporter:
    """Owns the results, and keeps the status of one NodePodProbe equal to those of the probes in its spec.

    All methods but `run` are synchronous. When cancelled, `run` writes pending changes once more, within
    `LAST_WRITE_SECONDS`.

    Args:
        on_transition: called with a probe and its new result after the state changed.
        on_write: called after each write of the status.

    Attributes:
        results: the newest result of each probe, as the status has it.
    """

    def __init__(
        self,
        *,
        client: RestClient,
        node_name: str,
        message_sync_seconds: float,
        refresh_seconds: float,
        on_transition: Callable[[DesiredProbe, ContainerProbeState], None],
        on_write: Callable[[], None],
    ) -> None:
        self.results: dict[ProbeKey, ContainerProbeState] = {}
        self._client = client
        self._key = NamespacedName("", node_name)
        self._message_sync_seconds = message_sync_seconds
        self._refresh_seconds = refresh_seconds
        self._on_transition = on_transition
        self._on_write = on_write
        self._log = structlog.get_logger().bind(node=node_name)

        self._object: NodePodProbe | None = None
        self._desired: Mapping[ProbeKey, DesiredProbe] = {}
        self._spec_bytes = 0
        self._stored_status: NodePodProbeStatus | None = None
        # Resource version of our newest write; empty once the watch has delivered it.
        self._awaited_version = ""
        self._wake = asyncio.Event()
        # Whether to write times that alone differ.
        self._times_changed = False
        # Loop times; infinite if nothing is due.
        self._change_due = math.inf
        self._refresh_due = math.inf
        self._next_message_at = -math.inf
        self._not_before = -math.inf
        self._rest_due = -math.inf
        self._failures = 0

    # What is to be written.

    def put(
        self,
        desired: DesiredProbe,
        result: ContainerProbeState,
        *,
        is_first_of_container: bool = False,
    ) -> None:
        """Store a new result. A state is written at once, a message within the sync interval. A newer time alone is not written
        before the next refresh.

        The first result of an edited handler counts as a state: the manager waits for it to apply the policies. The first
        result of a container is written even if only its time differs: by it the next daemon knows of which container it is.
        """
        key = desired.key
        old = self.results.get(key)
        self.results[key] = result
        self._times_changed |= is_first_of_container
        new_state = old is None or old.state != result.state
        if old is None or new_state or old.probe_hash != result.probe_hash:
            self._write_at_once()
        elif is_first_of_container or old.message != result.message or old.message_shortened:
            self._write_messages()
        if new_state:
            # After `run` has been woken: the write does not wait for the event.
            asyncio.get_running_loop().call_soon(self._on_transition, desired, result)

    def remove(self, key: ProbeKey) -> None:
        """Remove the result of a probe that no longer runs."""
        if self.results.pop(key, None) is not None:
            self._write_messages()

    def observe(
        self, newest: NodePodProbe | None, desired: Mapping[ProbeKey, DesiredProbe]
    ) -> None:
        """Handle the newest object of the watch and the probes in its spec; None if it was deleted."""
        before = self._object
        self._object = newest
        self._desired = desired
        self._wake.set()
        if newest is None:
            self._stored_status = None
            return
        if before is None or before.spec != newest.spec:
            self._spec_bytes = stored_bytes(newest.spec)
            self._compare_within_sync_interval()
        if before is None or before.uid != newest.uid:
            self._awaited_version = ""
            if not (newest.status and newest.status.pod_probe_statuses):
                self._write_at_once()  # A new object lacks the known results.
        if is_older(newest.resource_version, self._awaited_version):
            return
        # Stop comparing: after a restore of the API server from a backup, versions are lower again.
        self._awaited_version = ""
        if newest.status != self._stored_status:
            self._stored_status = newest.status
            self._compare_within_sync_interval()

    def _write_at_once(self) -> None:
        now = loop_time()
        self._change_due = min(self._change_due, now)
        self._wake.set()

    def _write_messages(self) -> None:
        """Write not before the sync interval after the last write."""
        due = max(loop_time(), self._next_message_at)
        self._change_due = min(self._change_due, due)
        self._wake.set()

    def _compare_within_sync_interval(self) -> None:
        due = loop_time() + self._message_sync_seconds
        self._change_due = min(self._change_due, due)

    # Writing.

    async def run(self) -> None:
        """Write whenever something is due, until cancelled."""
        self._schedule_refresh(min(self._refresh_seconds, FIRST_REFRESH_SECONDS))
        try:
            while True:
                await self._wait()
                await self._publish()
        finally:
            if self._change_due < math.inf:
                await self._publish_last()

    async def _wait(self) -> None:
        while True:
            due = min(self._change_due, self._refresh_due)
            due = max(due, self._not_before)
            if self._object is None:
                due = math.inf
            if due <= loop_time() + CLOCK_SLACK_SECONDS:
                return
            self._wake.clear()
            deadline: float | None = due
            if due == math.inf:
                deadline = None
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._wake.wait()

    async def _publish(self) -> None:
        at = loop_time() + CLOCK_SLACK_SECONDS
        refresh = self._times_changed or self._refresh_due <= at
        wanted = self._take_pending(refresh=refresh)
        if wanted is None:
            return
        if at > self._not_before + MAX_PAUSE_SECONDS:  # the object was left alone anyway
            self._rest_due = at + REST_INTERVAL_SECONDS
        self._not_before = at + GATHER_SECONDS
        self._next_message_at = at + self._message_sync_seconds
        try:
            await self._write(wanted)
        except (KubeError, asyncio.CancelledError) as error:
            self._change_due = loop_time()
            self._times_changed |= refresh
            if isinstance(error, asyncio.CancelledError):
                raise
            self._record_failure(error)

    async def _publish_last(self) -> None:
        wanted = self._take_pending(refresh=self._times_changed)
        if wanted is None:
            return
        try:
            # In a cancelled task, `asyncio.timeout` of Python 3.11.2 raises no TimeoutError.
            await asyncio.wait_for(self._write(wanted), LAST_WRITE_SECONDS)
        except (KubeError, TimeoutError) as error:
            self._log.warning("last results could not be written", error=_text(error))

    def _take_pending(self, *, refresh: bool) -> EncodedStatus | None:
        """Clear the pending changes. Return the status to write, or None if the stored one is the same."""
        if self._object is None:
            return None
        self._change_due = math.inf
        self._times_changed = False
        if refresh:
            self._schedule_refresh(self._refresh_seconds)
        status = status_of(self._desired, self.results)
        wanted = encode(status, self._spec_bytes)
        if differs(wanted.status, self._stored_status, probe_times=refresh):
            return wanted
        return None

    async def _write(self, wanted: EncodedStatus) -> None:
        metrics.STATUS_WRITES.inc()
        metrics.MESSAGES_SHORTENED.inc(wanted.shortened)
        began_at = loop_time()
        written = await self._send(wanted.body)
        self._pause_after(loop_time() - began_at)
        self._on_write()
        seen = self._object
        # Not if the watch has delivered a newer object or its deletion.
        if (
            seen is not None
            and seen.uid == written.uid
            and is_older(seen.resource_version, written.resource_version)
        ):
            self._stored_status = wanted.status
            self._awaited_version = written.resource_version
        self._schedule_refresh(self._refresh_seconds)
        if self._failures:
            self._log.info("status is written again", failures=self._failures)
            self._failures = 0

    def _pause_after(self, seconds: float) -> None:
        """Leave the object alone for as long as a write took, and now and then for longer, so that the manager can write the spec.

        The API server begins a patch again if the object changes before it is stored. On a busy API server that
        takes seconds, so without a rest no patch of a large spec would ever end.
        """
        now = loop_time()
        pause = seconds
        if now >= self._rest_due:
            self._rest_due = now + REST_INTERVAL_SECONDS
            pause = REST_RATIO * seconds
        earliest = now + min(pause, MAX_PAUSE_SECONDS)
        self._not_before = max(self._not_before, earliest)

    async def _send(self, status: bytes) -> ObjectMeta:
        """Send an update, or a merge patch if the update is refused.

        An update costs the API server about two thirds of a merge patch. But it conflicts if the manager has just
        changed the spec, and it needs a permission that older roles do not have.
        """
        version = self._awaited_version
        if not version and self._object is not None:
            version = self._object.metadata.resource_version
        try:
            return await self._client.replace_for_metadata(
                NODE_POD_PROBES,
                self._key,
                update_of(status, self._key.name, version),
                subresource="status",
                deadline_seconds=WRITE_DEADLINE_SECONDS,
            )
        except (Conflict, Forbidden) as refused:
            try:
                patched = await self._client.patch(
                    NODE_POD_PROBES,
                    self._key,
                    patch_of(status),
                    patch_type=PatchType.MERGE,
                    subresource="status",
                )
            except Forbidden:  # With own reads, the next try is an update too.
                raise refused from None
            return patched.metadata

    def _record_failure(self, error: Exception) -> None:
        self._failures += 1
        doublings = min(self._failures - 1, 16)
        doubled = FIRST_BACKOFF_SECONDS * 2**doublings
        backoff = min(doubled, MAX_BACKOFF_SECONDS)
        backoff *= random.uniform(0.5, 1.0)
        wait = max(backoff, retry_after_seconds(error))
        self._not_before = loop_time() + wait
        metrics.STATUS_WRITE_FAILURES.inc()
        if isinstance(error, NotFound | Conflict):
            self._log.debug("status has to be written again", error=str(error))
        elif self._failures == 1:
            self._log.warning("status could not be written", error=_text(error))

    def _schedule_refresh(self, seconds: float) -> None:
        stagger = random.uniform(0.0, REFRESH_STAGGER)
        delay = seconds * (1 + stagger)
        self._refresh_due = loop_time() + delay


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
