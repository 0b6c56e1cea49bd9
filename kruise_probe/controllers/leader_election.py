"""Leader election by a Lease: of all candidates at most one works, and the next one starts as soon as it may.

The leader renews the Lease every retry period and counts its term from the moment at which it *sent* the last
renewal that succeeded; candidates count from the moment at which they *saw* it, and wait the longer lease
duration. No clock is ever compared with another machine's, so skewed clocks cannot make two leaders. What
remains is a process that is paused between its last look at the clock and its write: `check` makes that the
instant in which the write leaves.

Source: client-go tools/leaderelection/leaderelection.go.
Differs: candidates watch the Lease instead of polling it, so a release is taken up at once; a term counts from
the sending of its renewal; losing raises, so that the process ends.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol

import structlog
from prometheus_client import Gauge

from kruise_probe.api.core import Lease
from kruise_probe.api.errors import Conflict, FatalError, KubeError, NotFound
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.resources import LEASES, Resource
from kruise_probe.api.watching import EventType, WatchEvent
from kruise_probe.client.request import PatchType
from kruise_probe.controllers.lease_record import Candidate, Observation, observe, release

log = structlog.get_logger(__name__)

MASTER_STATUS = Gauge(
    "leader_election_master_status",
    "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. "
    "'name' is the string used to identify the lease.",
    ("name",),
)

WATCH_SECONDS = 300.0
RELEASE_SECONDS = 2.0
"""How long the release may take: whoever waits for our end waits five."""

JITTER_FACTOR = 1.2

CLOCK_SLACK_SECONDS = 0.001
"""Added where the loop waits for an instant: timers may fire a hair early, and waiting for the hair is busy work."""


class NotLeader(KubeError):
    """A write was about to leave a process whose term has passed, or never began: nobody's mistake, and soon the end."""


class LeadershipLost(FatalError):
    """The Lease was not renewed in time, or somebody else holds it: the process must end."""


class LeaseClient(Protocol):
    """What election needs of `RestClient`; one of its own, not fenced by this elector's `check`."""

    async def get(self, resource: Resource[Lease], key: NamespacedName) -> Lease: ...
    async def create(
        self, resource: Resource[Lease], body: bytes, *, namespace: str = ""
    ) -> Lease: ...
    async def patch(
        self,
        resource: Resource[Lease],
        key: NamespacedName,
        body: bytes,
        *,
        patch_type: PatchType,
    ) -> Lease: ...
    def watch(
        self,
        resource: Resource[Lease],
        *,
        timeout_seconds: float,
        namespace: str = "",
        field_selector: str = "",
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent[Lease]]]: ...


class LeaderElector:
    """One candidate: waits for leadership, has its work done, and gives the Lease back as its very last call.

    Not safe to run twice. Cancelling `run` cancels the work, keeps renewing until it has ended, and then
    releases the Lease. Raises ValueError for durations that cannot keep two leaders apart.
    """

    def __init__(
        self,
        client: LeaseClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        lease_duration_seconds: float = 15.0,
        renew_deadline_seconds: float = 10.0,
        retry_period_seconds: float = 2.0,
        now: Callable[[], datetime],
    ) -> None:
        _check_durations(lease_duration_seconds, renew_deadline_seconds, retry_period_seconds)
        self._client = client
        self._key = NamespacedName(namespace, name)
        self._candidate = Candidate(identity, int(lease_duration_seconds))
        self._renew_deadline_seconds = renew_deadline_seconds
        self._retry_period_seconds = retry_period_seconds
        self._now = now
        self._observed: Observation | None = None
        self._changed = asyncio.Event()
        self._term_ends_at = float("-inf")
        self._complaint = ""
        self._status = MASTER_STATUS.labels(name)
        self._status.set(0)

    @property
    def is_leader(self) -> bool:
        """True while the term runs; False from the moment it has passed, whoever has noticed."""
        return asyncio.get_running_loop().time() < self._term_ends_at

    @property
    def holder(self) -> str:
        """Who held the Lease when it was last seen; empty for nobody."""
        return self._observed.holder if self._observed else ""

    def check(self) -> None:
        """The fence: called right before a write leaves.

        Raises:
            NotLeader: this process does not lead, or its term has passed without a renewal.
        """
        if not self.is_leader:
            raise NotLeader(
                f"lease {self._key}: {self._candidate.identity} does not lead (any more)"
            )

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Waits for leadership, then awaits `lead()`; returns or raises as it does, the Lease released.

        Raises:
            LeadershipLost: the term has passed, or another holds the Lease; `lead` was cancelled and has ended.
        """
        await self._acquire()
        log.info("became leader", lease=str(self._key), identity=self._candidate.identity)
        self._status.set(1)
        try:
            await self._lead_and_renew(lead)
        finally:
            self._status.set(0)
            await self._release()

    async def _lead_and_renew(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Whatever the work fails with once the term has passed, by the fence for one, the lost Lease is why."""
        try:
            async with asyncio.TaskGroup() as tasks:
                renewing = tasks.create_task(self._renew_until_lost(), name="renew lease")
                await lead()
                renewing.cancel()
        except BaseExceptionGroup as group:
            lost, others = group.split(LeadershipLost)
            if lost is not None:
                raise LeadershipLost(str(lost.exceptions[0])) from others
            if not self.is_leader:
                raise LeadershipLost(f"lease {self._key}: its term has passed") from group
            raise group.exceptions[0] from None

    async def _acquire(self) -> None:
        """Returns as soon as this candidate holds the Lease."""
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self._follow(), name="follow lease")
            while not await self._try_to_take():
                await self._until_worth_a_try()
            following.cancel()

    async def _follow(self) -> None:
        """Keeps `_observed` as new as it can be: by a watch, and by one look a retry period without one."""
        while True:
            try:
                await self._look()
                await self._watch()
            except (KubeError, TimeoutError) as error:
                self._complain("lease cannot be followed", error)
            await asyncio.sleep(self._jittered_retry_seconds())

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(self._renew_deadline_seconds / 2):
                self._see(await self._client.get(LEASES, self._key))
        except NotFound:
            self._see(None)

    async def _watch(self) -> None:
        """Starts with the Lease as it is: its own version may be too old to start from when nobody renewed it."""
        async with self._client.watch(
            LEASES,
            namespace=self._key.namespace,
            field_selector=f"metadata.name={self._key.name}",
            timeout_seconds=WATCH_SECONDS,
        ) as events:
            async for event in events:
                if event.object is not None:
                    self._see(event.object if event.type is not EventType.DELETED else None)

    def _see(self, lease: Lease | None) -> None:
        before = self._observed
        self._observed = observe(before, lease, asyncio.get_running_loop().time())
        if self._observed.holder and (before is None or before.holder != self._observed.holder):
            log.info("leader seen", lease=str(self._key), holder=self._observed.holder)
        self._changed.set()

    async def _until_worth_a_try(self) -> None:
        """Returns when something was seen, or when the term that was seen has passed."""
        now = asyncio.get_running_loop().time()
        retry_at = now + self._jittered_retry_seconds()
        free_at = self._observed.free_at if self._observed else retry_at
        try:
            async with asyncio.timeout_at(
                (free_at if free_at > now else retry_at) + CLOCK_SLACK_SECONDS
            ):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _try_to_take(self) -> bool:
        self._changed.clear()
        observed, sent_at = self._observed, asyncio.get_running_loop().time()
        if observed is None:
            return False
        if observed.free_at > sent_at and observed.holder != self._candidate.identity:
            return False
        try:
            async with asyncio.timeout(self._renew_deadline_seconds / 2):
                await self._write_acquisition(observed, sent_at)
        except (KubeError, TimeoutError) as error:
            self._complain("lease not acquired", error)
            await self._look_again(observed)
            return False
        return True

    async def _look_again(self, refused: Observation) -> None:
        """After an attempt that failed; the next one follows at once only if there is something new to see."""
        try:
            await self._look()
        except (KubeError, TimeoutError) as error:
            self._complain("lease cannot be read", error)
        if self._known().resource_version == refused.resource_version:
            self._changed.clear()

    async def _write_acquisition(self, observed: Observation, sent_at: float) -> None:
        if observed.resource_version:
            body = self._candidate.acquisition(observed, self._now())
            self._begin_term(await self._patch(body), sent_at)
        else:
            body = self._candidate.creation(self._key, self._now())
            created = await self._client.create(LEASES, body, namespace=self._key.namespace)
            self._begin_term(created, sent_at)

    async def _patch(self, body: bytes) -> Lease:
        return await self._client.patch(LEASES, self._key, body, patch_type=PatchType.MERGE)

    def _begin_term(self, lease: Lease, sent_at: float) -> None:
        self._see(lease)
        self._term_ends_at = sent_at + self._renew_deadline_seconds

    async def _renew_until_lost(self) -> None:
        time = asyncio.get_running_loop().time
        while True:
            left_seconds = self._term_ends_at - time() + CLOCK_SLACK_SECONDS
            await asyncio.sleep(min(self._retry_period_seconds, left_seconds))
            if not self.is_leader:
                raise LeadershipLost(
                    f"lease {self._key}: not renewed for {self._renew_deadline_seconds:g} s"
                )
            try:
                attempt_ends_at = time() + self._renew_deadline_seconds / 2
                async with asyncio.timeout_at(min(attempt_ends_at, self._term_ends_at)):
                    await self._renew()
            except (KubeError, TimeoutError) as error:
                self._complain("lease not renewed", error)

    async def _renew(self) -> None:
        """Begins the next term.

        Raises:
            LeadershipLost: the Lease says that another holds it.
        """
        try:
            await self._write_renewal()
        except (Conflict, NotFound):
            await self._look()
            if self._observed is None or self.holder != self._candidate.identity:
                self._term_ends_at = float("-inf")
                raise LeadershipLost(
                    f"lease {self._key}: held by {self.holder or 'nobody'} now"
                ) from None
            await self._write_renewal()

    async def _write_renewal(self) -> None:
        observed, sent_at = self._observed, asyncio.get_running_loop().time()
        if observed is None or not observed.resource_version:
            await self._write_acquisition(self._known(), sent_at)
            return
        self._begin_term(await self._patch(self._candidate.renewal(observed, self._now())), sent_at)

    def _known(self) -> Observation:
        if self._observed is None:
            raise RuntimeError("a leader has seen its lease")
        return self._observed

    async def _release(self) -> None:
        """The last call: after it somebody else may lead, so the fence falls first."""
        leading = self.is_leader
        self._term_ends_at = float("-inf")
        if not leading:
            return
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._give_back()
        except (KubeError, TimeoutError) as error:
            text = str(error) or "no answer in time"
            log.warning("lease not released", lease=str(self._key), error=text)
        else:
            log.info("lease released", lease=str(self._key))

    async def _give_back(self) -> None:
        """The end may have come while a renewal was under way; if that was carried out, the Lease is newer than we know.

        Raises:
            Conflict: somebody else holds the Lease.
        """
        while True:
            try:
                await self._patch(release(self._known(), self._now()))
                return
            except Conflict:
                await self._look()
                if self.holder != self._candidate.identity:
                    raise

    def _complain(self, event: str, error: Exception) -> None:
        """Says a new trouble aloud; the same one again, or a lost race, only to whoever debugs."""
        text = str(error) or "no answer in time"
        expected = isinstance(error, Conflict) or text == self._complaint
        say = log.debug if expected else log.warning
        self._complaint = text
        say(event, lease=str(self._key), error=text)

    def _jittered_retry_seconds(self) -> float:
        return self._retry_period_seconds * random.uniform(1.0, JITTER_FACTOR)


def _check_durations(lease: float, renew_deadline: float, retry_period: float) -> None:
    if int(lease) <= renew_deadline:
        raise ValueError(
            f"the lease duration ({lease:g} s, whole seconds count) must exceed the renew deadline "
            f"({renew_deadline:g} s)"
        )
    if renew_deadline <= JITTER_FACTOR * retry_period:
        raise ValueError(
            f"the renew deadline ({renew_deadline:g} s) must exceed {JITTER_FACTOR} retry periods "
            f"({retry_period:g} s each)"
        )
    if retry_period <= 0:
        raise ValueError(f"the retry period ({retry_period:g} s) must be positive")
