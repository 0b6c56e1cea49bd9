"""Places of attempts, and the bytes that they hold: limited, and shared by namespace, then by pod.

- While more than a quarter of the places is free, everybody gets one. A pod has at most half of the places, rounded
  down, or one.
- Of the last quarter, a pod gets a place only while its namespace and itself hold fewer than are still free.

So a namespace with nothing in flight gets a place at once. Of 16 places, three hostile namespaces leave four to the
others, six leave two, and fifteen leave one. Nothing is remembered of attempts that have ended.

Attempts with a timeout above `LONG_SECONDS` share half of the places by the same rules, because they could hold a place
for an hour. A namespace is not protected from its own pods beyond the rules above.

Bytes are shared by the same rules. An attempt takes a few with its place, and more as it receives. If it may not have
them now, it gives everything back, waits until all that an attempt can need are free, and runs again.

Differs: kubelet limits neither execs nor sockets. A hundred execs that are due together are a hundred calls at once.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from kruise_probe.api.histogram import DurationHistogram
from kruise_probe.api.times import loop_time
from kruise_probe.daemon.probers.prober import (
    MAX_VALUE_ATTEMPT_BYTES,
    TLS_BYTES,
    BytesQueued,
    Reason,
)

LONG_SECONDS: Final = 10.0
"""An attempt with a longer timeout is long: others cannot wait until it ends."""

MAX_HELD_BYTES: Final = 16 * 1024 * 1024
"""What all attempts of a node that use sockets hold together."""
CONNECTION_BYTES: Final = 8 * 1024
"""What each of them holds for its task, its connection and its first read."""
_MOST_BYTES: Final = CONNECTION_BYTES + TLS_BYTES + 2 * MAX_VALUE_ATTEMPT_BYTES

QUEUE_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Buckets of the time that attempts wait for a place, in seconds."""


class Tenant(NamedTuple):
    """The pod whose probe runs."""

    namespace: str
    pod_uid: str


class Kind(NamedTuple):
    """A kind of attempts: how messages name it, and what its author or the administrator can do.

    Attributes:
        lacking: what an attempt waits for.
        unit: in which it is counted.
        held_bytes: what each attempt holds before it has received anything; 0 for those that another library bounds.
    """

    reason: Reason
    lacking: str
    unit: str
    attempt: str
    advice: str
    node_advice: str
    held_bytes: int = 0


EXECS: Final = Kind(
    Reason.EXEC_QUEUED,
    "place",
    "places",
    "command",
    "end commands that hang, run fewer exec probes, or lower timeoutSeconds",
    "raise --max-concurrent-execs of the daemon, or move the pod to another node",
)
SOCKETS: Final = Kind(
    Reason.ATTEMPT_QUEUED,
    "place",
    "places",
    "attempt",
    "make the port respond in time, run fewer probes, or lower timeoutSeconds",
    "raise the daemon's limit of open files, or move the pod to another node",
    CONNECTION_BYTES,
)
_BYTES: Final = Kind(
    Reason.ATTEMPT_QUEUED,
    "memory",
    "bytes",
    "attempt",
    "make the port respond in time and with less, run fewer probes, or lower timeoutSeconds",
    "move the pod to another node",
)


OTHERS: Final = "other pods"


class _Pool:
    """Places or bytes, and how many of them each namespace and each pod holds."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.free = count
        self._held: dict[str | Tenant, int] = {}
        self._most_of_a_pod = max(count // 2, 1)
        self._last_quarter = count // 4

    def allows(self, tenant: Tenant, number: int = 1) -> bool:
        """Whether the tenant may take `number` more now."""
        pod = self.held_by(tenant) + number
        if pod > self._most_of_a_pod:
            return False
        left = self.free - number
        if left < 0:
            return False
        if left >= self._last_quarter:
            return True
        namespace = self.held_by(tenant.namespace)
        return namespace + pod <= self.free

    def held_by(self, holder: str | Tenant) -> int:
        """How many a namespace or a pod holds."""
        return self._held.get(holder, 0)

    def add(self, tenant: Tenant, number: int) -> None:
        """Count what is taken, or given back if `number` is negative."""
        self.free -= number
        for holder in (tenant.namespace, tenant):
            left = self._held.get(holder, 0) + number
            if left:
                self._held[holder] = left
            else:
                self._held.pop(holder, None)

    def holder(self, tenant: Tenant) -> tuple[str, int]:
        """Who holds most of what the tenant lacks, and how much; no namespace but its own is named."""
        pod = self.held_by(tenant)
        namespace = self.held_by(tenant.namespace)
        taken = self.count - self.free
        others = taken - namespace
        if namespace < others:
            return OTHERS, others
        if 2 * pod < namespace:
            whose = f"namespace {tenant.namespace}"
            return whose, namespace
        return "this pod", pod


class StepRunner(Protocol):
    """Runs steps that need much CPU: `Threads`."""

    async def run(self, tenant: Tenant, step: Callable[[], bool], deadline: float) -> bool:
        """See `Resources.compute`."""
        ...


class Place:
    """The place of one attempt, or its request for one. It implements `Resources`.

    Attributes:
        granted: whether the attempt may run.
        requested_at: loop time.
        reported: set by the probe that published that it waits too long.
        held_bytes: held now, or requested.
    """

    __slots__ = (
        "_places",
        "granted",
        "held_bytes",
        "long",
        "reported",
        "requested_at",
        "tenant",
        "turn",
    )

    def __init__(self, places: "Places", tenant: Tenant, long: bool) -> None:
        self._places = places
        self.tenant = tenant
        self.long = long

    def request(self, held_bytes: int) -> None:
        """Become a new request."""
        self.held_bytes = held_bytes
        self.requested_at = loop_time()
        self.granted = False
        self.reported = False
        self.turn: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Wait until the place is granted."""
        self.turn = asyncio.get_running_loop().create_future()
        await self.turn

    def hold(self, size: int) -> None:
        needed = CONNECTION_BYTES + size
        more = needed - self.held_bytes
        if more > 0:
            self._places.take_bytes(self, more)

    async def compute(self, step: Callable[[], bool], deadline: float) -> bool:
        return await self._places.compute(self.tenant, step, deadline)


_QueuesOfPods = dict[tuple[Tenant, bool], deque[Place]]
"""The waiting attempts of each pod, the oldest first; those with a long timeout wait in a queue of their own."""


class Places:
    """The places of a node.

    Of the attempts that may have a place, the namespace that holds the fewest is served first, within it the pod that
    holds the fewest, and of a pod the oldest attempt. Among equals, the one that was served last comes last.

    Attributes:
        reason: of a probe that has waited too long.
        queue_durations: how long attempts waited for a place.
    """

    def __init__(self, count: int, kind: Kind, steps: StepRunner | None = None) -> None:
        self.reason = kind.reason
        self.queue_durations = DurationHistogram(QUEUE_BUCKETS)
        self._kind = kind
        self._all = _Pool(count)
        half = count // 2
        self._for_long = _Pool(max(1, half))
        self._bytes = _Pool(MAX_HELD_BYTES)
        self._steps = steps
        self._waiting: dict[str, _QueuesOfPods] = {}
        """By namespace."""

    @property
    def in_flight(self) -> int:
        """The number of attempts in flight."""
        return self._all.count - self._all.free

    @property
    def queued_probes(self) -> int:
        """The number of waiting probes that were reported to wait too long."""
        number = 0
        for pods in self._waiting.values():
            for queue in pods.values():
                number += sum(place.reported for place in queue)
        return number

    def request(self, tenant: Tenant, *, long: bool) -> Place:
        """Request a place for one attempt; unless it is `granted` at once, `wait` for it. Release it in any case."""
        place = Place(self, tenant, long)
        place.request(self._kind.held_bytes)
        self._grant_or_queue(place)
        return place

    def request_again(self, place: Place) -> None:
        """After `BytesQueued`: give the place back, and request one with all bytes that an attempt can need."""
        self._give_back(place)
        place.request(_MOST_BYTES)
        self._grant_or_queue(place)

    def release(self, place: Place) -> None:
        """Give the place back, or end its request."""
        if place.granted:
            self._give_back(place)
        else:
            self._unqueue(place)
        if self._waiting:
            self._grant_next()

    def take_bytes(self, place: Place, number: int) -> None:
        """Let the attempt hold more bytes. Raises: BytesQueued."""
        if not self._bytes.allows(place.tenant, number):
            raise BytesQueued
        self._bytes.add(place.tenant, number)
        place.held_bytes += number

    async def compute(self, tenant: Tenant, step: Callable[[], bool], deadline: float) -> bool:
        """See `Resources.compute`; without threads, the step runs here."""
        if self._steps is None:
            return step()
        return await self._steps.run(tenant, step, deadline)

    def _allows(self, place: Place) -> bool:
        return self._blocking_pool(place) is None

    def _blocking_pool(self, place: Place) -> _Pool | None:
        """Where the tenant holds too much for another place, or None."""
        tenant = place.tenant
        if place.long and not self._for_long.allows(tenant):
            return self._for_long
        if not self._all.allows(tenant):
            return self._all
        if place.held_bytes and not self._bytes.allows(tenant, place.held_bytes):
            return self._bytes
        return None

    def _grant_or_queue(self, place: Place) -> None:
        if not self._waiting and self._allows(place):
            self._grant(place)
            return
        pods = self._waiting.setdefault(place.tenant.namespace, {})
        queue = pods.setdefault((place.tenant, place.long), deque())
        queue.append(place)
        self._grant_next()

    def _grant(self, place: Place) -> None:
        place.granted = True
        self._count(place, 1, place.held_bytes)
        waited = loop_time() - place.requested_at
        self.queue_durations.observe(waited)
        turn = place.turn
        if turn is not None and not turn.done():
            turn.set_result(None)

    def _give_back(self, place: Place) -> None:
        self._count(place, -1, -place.held_bytes)

    def _count(self, place: Place, number: int, held_bytes: int) -> None:
        self._all.add(place.tenant, number)
        if place.long:
            self._for_long.add(place.tenant, number)
        if held_bytes:
            self._bytes.add(place.tenant, held_bytes)

    def _unqueue(self, place: Place) -> None:
        """Remove a waiting attempt; its pod and namespace move to the end of their queues if they have more."""
        tenant = place.tenant
        key = (tenant, place.long)
        pods = self._waiting.pop(tenant.namespace)
        queue = pods.pop(key)
        queue.remove(place)
        if queue:
            pods[key] = queue
        if pods:
            self._waiting[tenant.namespace] = pods

    def _grant_next(self) -> None:
        while self._waiting:
            place = self._next()
            if place is None:
                return
            self._unqueue(place)
            self._grant(place)

    def _next(self) -> Place | None:
        held_by = self._all.held_by
        for namespace in sorted(self._waiting, key=held_by):
            pods = self._waiting[namespace]
            for tenant, long in sorted(pods, key=lambda pod: held_by(pod[0])):
                oldest = pods[tenant, long][0]
                if self._allows(oldest):
                    return oldest
        return None

    def describe(self, place: Place) -> str:
        """Why the attempt waits and what to do; mentions no namespace but its own."""
        words = self._kind
        attempts = f"{words.attempt}s"
        pool = self._blocking_pool(place) or self._all
        if pool is self._for_long:
            attempts += f" with timeoutSeconds over {LONG_SECONDS:g}"
        elif pool is self._bytes:
            words = _BYTES
        whose, held = pool.holder(place.tenant)
        advice = words.advice
        if whose == OTHERS:
            advice = words.node_advice
        return (
            f"no {words.lacking} to run the {words.attempt}; {attempts} of {whose} hold {held} of the "
            f"{pool.count} {words.unit} that this node has for them, and the rest is kept for other pods; {advice}"
        )
