"""Leader election by a Lease: at most one candidate leads.

The leader renews the Lease every retry period. Its term starts when it *sent* the last successful renewal.
Candidates count from when they *observed* that renewal, and wait for the longer lease duration. Clocks of two
machines are never compared, so clock skew cannot cause two leaders. One gap remains: a process may be paused
between its last check of the clock and its write. So `check` runs in the step that writes to the socket.

The election runs in a thread, with connections of its own from the start: neither a slow step of the event loop nor a
lack of connections ends the term. It stops when the loop has not turned for the renew deadline.

Source: client-go tools/leaderelection/leaderelection.go and resourcelock/leaselock.go.
Differs: candidates watch the Lease instead of polling it, so they acquire a released Lease at once; a term starts
when its renewal is sent; a lost Lease raises, so that the process ends. Writes are merge patches with a resourceVersion, so
fields of others stay on the Lease; a deleted Lease counts as held until its last observed term has ended.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import NamedTuple

import msgspec
import structlog
from prometheus_client import Gauge

from kruise_probe.api.core import LEASES, Lease, LeaseSpec
from kruise_probe.api.errors import Conflict, FatalError, KubeError, NotFound, first_of
from kruise_probe.api.meta import EventType, NamespacedName, ObjectMeta
from kruise_probe.api.times import CLOCK_SLACK_SECONDS, format_micro_time, loop_time
from kruise_probe.client.request import PatchType
from kruise_probe.client.rest import RestClient
from kruise_probe.manager.lease_thread import LoopTurns, run_beside

_log = structlog.get_logger(__name__)

MASTER_STATUS = Gauge(
    "leader_election_master_status",
    "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. "
    "'name' is the string used to identify the lease.",
    ("name",),
)

WATCH_SECONDS = 300.0
RELEASE_SECONDS = 2.0
"""Timeout of the release. The whole process has five seconds to end."""

JITTER_FACTOR = 1.2


class NotLeader(KubeError):
    """A write was refused because this process does not lead, or its term has ended."""


class LeadershipLost(FatalError):
    """The Lease was not renewed in time, or another candidate holds it: the process must end."""


class LeaderElection(NamedTuple):
    """Options of leader election; the durations are those of client-go.

    Attributes:
        namespace, lease: namespace and name of the Lease.
        identity: unique holder of the Lease.
    """

    namespace: str
    lease: str
    identity: str
    lease_duration_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_period_seconds: float = 2.0


class Observation(NamedTuple):
    """The Lease as last observed, and the loop time at which this process first observed that record.

    `resource_version` is empty if there is no Lease, or if it was deleted.
    """

    spec: LeaseSpec
    resource_version: str
    seen_at: float

    @property
    def holder(self) -> str:
        return self.spec.holder_identity or ""

    @property
    def free_at(self) -> float:
        """The loop time from which the Lease may be acquired: at once if it has no holder."""
        if not self.holder:
            return self.seen_at
        return self.seen_at + float(self.spec.lease_duration_seconds or 0)


UNREAD = Observation(LeaseSpec(), "", float("inf"))
"""The observation before the first read: never free."""


def observe(
    before: Observation,
    lease: Lease | None,
    now: float,
) -> Observation:
    """Return the observation after reading `lease` (None: it does not exist) at loop time `now`.

    Only a changed record starts a new term.
    """
    if lease is None:
        return Observation(before.spec, "", min(before.seen_at, now))
    seen_at = now
    if lease.spec == before.spec:
        seen_at = min(before.seen_at, now)
    return Observation(lease.spec, lease.metadata.resource_version, seen_at)


def next_term(observed: Observation, options: LeaderElection, at: datetime) -> LeaseSpec:
    """A new term; if we hold the Lease, its renewal, which keeps the time at which it was acquired."""
    now = format_micro_time(at)
    acquired_at: str | None = now
    transitions = observed.spec.lease_transitions
    if observed.holder == options.identity:
        acquired_at = observed.spec.acquire_time
    elif transitions is not None:
        transitions += 1
    return LeaseSpec(
        holder_identity=options.identity,
        lease_duration_seconds=int(options.lease_duration_seconds),
        acquire_time=acquired_at,
        renew_time=now,
        lease_transitions=transitions or 0,
    )


def released(at: datetime) -> LeaseSpec:
    """No holder, so that any candidate may acquire the Lease."""
    now = format_micro_time(at)
    return LeaseSpec("", lease_duration_seconds=1, acquire_time=now, renew_time=now)


class LeaderElector:
    """One candidate: acquires the Lease, runs the work, and releases the Lease as its last call.

    `new_client` makes a client that `check` does not fence. Not safe to run twice. Cancelling `run` cancels the work,
    renews the Lease until the work has ended, and then releases it.

    `in_thread`: False runs the election on the same loop, for virtual time.
    """

    def __init__(
        self,
        new_client: Callable[[], RestClient],
        options: LeaderElection,
        *,
        now: Callable[[], datetime],
        in_thread: bool = False,
    ) -> None:
        self._new_client = new_client
        self._in_thread = in_thread
        self._key = NamespacedName(options.namespace, options.lease)
        self._options = options
        self._now = now
        self._observed = UNREAD
        self._term_ends_at = float("-inf")
        self._last_error = ""
        self._status = MASTER_STATUS.labels(options.lease)
        self._status.set(0)

    @property
    def is_leader(self) -> bool:
        """True during the term; False as soon as it has ended, even before the renewal loop notices."""
        return loop_time() < self._term_ends_at

    @property
    def _is_holder(self) -> bool:
        return self._observed.holder == self._options.identity

    def check(self) -> None:
        """Fence writes; called in the step that writes to the socket.

        Raises:
            NotLeader: this process does not lead, or its term has ended without a renewal.
        """
        if not self.is_leader:
            raise NotLeader(
                f"write not sent: {self._options.identity} does not hold lease {self._key}"
            )

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for leadership, await `lead()` and release the Lease. Return or raise as `lead` does.

        Raises:
            LeadershipLost: the term has ended, or another holds the Lease; `lead` was cancelled and has ended.
        """
        elected: Future[None] = Future()
        elected.set_running_or_notify_cancel()  # only the election ends it
        turns = LoopTurns(self._options.retry_period_seconds / 2)
        elect = partial(self._elect, elected, turns)
        try:
            async with asyncio.TaskGroup() as tasks:
                election = run_beside(elect) if self._in_thread else elect()
                electing = tasks.create_task(election, name="leader election")
                await asyncio.wrap_future(elected)
                _log.info(
                    "became leader",
                    lease=str(self._key),
                    identity=self._options.identity,
                )
                self._status.set(1)
                await lead()
                electing.cancel()
        except BaseExceptionGroup as group:
            raise first_of(group) from group
        finally:
            self._status.set(0)
            turns.stop()

    async def _elect(self, elected: Future[None], turns: LoopTurns) -> None:
        """Acquire, renew until cancelled or lost, and release."""
        async with self._new_client() as client:
            await self._acquire(client)
            try:
                elected.set_result(None)
                await self._renew_until_lost(client, turns)
            finally:
                await self._release(client)

    async def _acquire(self, client: RestClient) -> None:
        """Wait until this candidate holds the Lease. One request at a time, so one connection is enough."""
        while True:
            try:
                await self._follow(client)
                if self._is_free:
                    async with asyncio.timeout(self._options.renew_deadline_seconds / 2):
                        await self._write_term(client)
                    return
            except (KubeError, TimeoutError) as error:
                self._log_failure("lease not acquired", error)
            await asyncio.sleep(
                self._options.retry_period_seconds * random.uniform(1.0, JITTER_FACTOR)
            )

    @property
    def _is_free(self) -> bool:
        """True if it may be acquired. We hold it already if the response to our write was lost."""
        now = loop_time() + CLOCK_SLACK_SECONDS
        return self._observed.free_at <= now or self._is_holder

    async def _follow(self, client: RestClient) -> None:
        """Read the Lease, and watch it until it is free or the watch ends.

        Without a resourceVersion: that of a Lease without renewals may be too old for a watch.
        """
        await self._read_lease(client)
        if self._is_free:
            return
        with suppress(TimeoutError):  # the observed term has ended
            async with asyncio.timeout_at(self._observed.free_at) as term:
                async with client.watch(
                    LEASES,
                    namespace=self._key.namespace,
                    field_selector=f"metadata.name={self._key.name}",
                    timeout_seconds=WATCH_SECONDS,
                ) as events:
                    async for event in events:
                        if event.object is not None:
                            is_deleted = event.type is EventType.DELETED
                            self._observe(None if is_deleted else event.object)
                        if self._is_free:
                            return
                        term.reschedule(self._observed.free_at)

    async def _read_lease(self, client: RestClient) -> None:
        try:
            async with asyncio.timeout(self._options.renew_deadline_seconds / 2):
                self._observe(await client.get(LEASES, self._key))
        except NotFound:
            self._observe(None)

    def _observe(self, lease: Lease | None) -> None:
        before = self._observed.holder
        self._observed = observe(self._observed, lease, loop_time())
        if self._observed.holder not in ("", before):
            _log.info(
                "leader changed",
                lease=str(self._key),
                holder=self._observed.holder,
            )

    async def _write_term(self, client: RestClient) -> None:
        """Create, acquire or renew the Lease, and begin a term. It counts from when the request is sent."""
        observed = self._observed
        sent_at = loop_time()
        spec = next_term(observed, self._options, self._now())
        if observed.resource_version:
            lease = await self._patch(client, observed, spec)
        else:
            metadata = ObjectMeta(name=self._key.name, namespace=self._key.namespace)
            body = LEASES.encode(metadata=metadata, spec=spec)
            lease = await client.create(LEASES, body, namespace=self._key.namespace)
        self._observe(lease)
        self._term_ends_at = sent_at + self._options.renew_deadline_seconds

    async def _patch(self, client: RestClient, observed: Observation, spec: LeaseSpec) -> Lease:
        """Patch the Lease unless it has changed since it was observed."""
        patch = {"metadata": {"resourceVersion": observed.resource_version}, "spec": spec}
        body = msgspec.json.encode(patch)
        return await client.patch(LEASES, self._key, body, patch_type=PatchType.MERGE)

    async def _renew_until_lost(self, client: RestClient, turns: LoopTurns) -> None:
        """Raise LeadershipLost when the Lease is lost or the loop hangs."""
        deadline_seconds = self._options.renew_deadline_seconds
        while True:
            left_seconds = self._term_ends_at - loop_time() + CLOCK_SLACK_SECONDS
            await asyncio.sleep(min(self._options.retry_period_seconds, left_seconds))
            if loop_time() - turns.last > deadline_seconds:
                raise LeadershipLost(
                    f"lease {self._key}: not renewed, because the event loop has not turned for "
                    f"{deadline_seconds:g} s. See the slow steps in the log"
                )
            if not self.is_leader:
                raise LeadershipLost(
                    f"lease {self._key}: not renewed for {deadline_seconds:g} s. "
                    "Check the connection to the API server"
                )
            try:
                attempt_ends_at = loop_time() + deadline_seconds / 2
                async with asyncio.timeout_at(min(attempt_ends_at, self._term_ends_at)):
                    await self._write_as_holder(client, self._write_term)
            except (KubeError, TimeoutError) as error:
                self._log_failure("lease not renewed", error)

    async def _write_as_holder(
        self,
        client: RestClient,
        write: Callable[[RestClient], Awaitable[None]],
    ) -> None:
        """Retry after a conflict: an earlier write may have been applied without a response.

        Raises:
            LeadershipLost: another candidate holds the Lease.
        """
        while True:
            try:
                await write(client)
                return
            except (Conflict, NotFound):
                await self._read_lease(client)
                if not self._is_holder:
                    self._term_ends_at = float("-inf")
                    holder = self._observed.holder or "no candidate"
                    raise LeadershipLost(f"lease {self._key}: {holder} holds it now") from None

    async def _release(self, client: RestClient) -> None:
        """End our term first, so that `check` refuses writes before another candidate can lead."""
        leading = self.is_leader
        self._term_ends_at = float("-inf")
        if not leading:
            return
        try:
            # In a cancelled task, `asyncio.timeout` of Python 3.11.2 raises no TimeoutError.
            release = self._write_as_holder(client, self._write_release)
            await asyncio.wait_for(release, RELEASE_SECONDS)
        except (KubeError, TimeoutError, LeadershipLost) as error:
            text = str(error) or "no response in time"
            _log.warning("lease not released", lease=str(self._key), error=text)
        else:
            _log.info("lease released", lease=str(self._key))

    async def _write_release(self, client: RestClient) -> None:
        if self._observed.resource_version:
            await self._patch(client, self._observed, released(self._now()))

    def _log_failure(self, event: str, error: Exception) -> None:
        """Log a new error as a warning; log a repeated error, or a lost race, at debug level."""
        text = str(error) or "no response in time"
        log_event = _log.warning
        if isinstance(error, Conflict) or text == self._last_error:
            log_event = _log.debug
        self._last_error = text
        log_event(event, lease=str(self._key), error=text)
