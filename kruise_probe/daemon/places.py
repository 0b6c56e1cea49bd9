"""Places of attempts: a limited number in flight at once, shared by namespace, then by pod.

- While more than a quarter of the places is free, everybody gets one. A single pod takes at most half of the places.
- Of the last quarter, a pod gets a place only while its namespace and itself hold fewer than are still free.

So a namespace with nothing in flight gets a place at once. Of 16 places, three hostile namespaces leave four to the
others, six leave two, and fifteen leave one. Nothing is remembered of attempts that have ended.

Attempts with a timeout above `LONG_SECONDS` share half of the places by the same rules, because they could hold a place
for an hour. A namespace is not protected from its own pods beyond the rules above.

Differs: kubelet limits neither execs nor sockets. A hundred execs that are due together are a hundred calls at once.
"""

import asyncio
from collections import Counter, deque
from typing import Final, NamedTuple

from kruise_probe.api.times import DurationHistogram
from kruise_probe.daemon.probers.prober import Reason

LONG_SECONDS: Final = 10.0
"""An attempt with a longer timeout is long: others cannot wait until it ends."""

QUEUE_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Buckets of the time that attempts wait for a place, in seconds."""


class Tenant(NamedTuple):
    """The pod whose probe runs."""

    namespace: str
    pod_uid: str


class Wording(NamedTuple):
    """How messages name the attempts, and what their author or the administrator can do."""

    reason: Reason
    attempt: str
    advice: str
    node_advice: str


EXECS: Final = Wording(
    Reason.EXEC_QUEUED,
    "command",
    "end commands that hang, run fewer exec probes, or lower timeoutSeconds",
    "raise --max-concurrent-execs of the daemon, or move the pod to another node",
)
SOCKETS: Final = Wording(
    Reason.ATTEMPT_QUEUED,
    "attempt",
    "make the port respond in time, run fewer probes, or lower timeoutSeconds",
    "raise the daemon's limit of open files, or move the pod to another node",
)


class _Pool:
    """Places, and how many of them each namespace and each pod holds."""

    def __init__(self, count: int) -> None:
        self.count = self.free = count
        self.held: Counter[str | Tenant] = Counter()

    def allows(self, tenant: Tenant) -> bool:
        """Whether the tenant may take another place now."""
        namespace, pod = self.held[tenant.namespace], self.held[tenant]
        if self.free > self.count // 4:
            return pod <= self.free
        return namespace + pod < self.free

    def add(self, tenant: Tenant, number: int) -> None:
        """Count places that are taken, or given back if `number` is negative."""
        self.free -= number
        for each in (tenant.namespace, tenant):
            self.held[each] += number
            if not self.held[each]:
                del self.held[each]


class Place:
    """The place of one attempt, or its request for one.

    Attributes:
        granted: whether the attempt may run.
        requested_at: loop time.
        reported: set by the probe that published that it waits too long.
    """

    __slots__ = ("granted", "long", "reported", "requested_at", "tenant", "turn")

    def __init__(self, tenant: Tenant, long: bool, at: float) -> None:
        self.tenant = tenant
        self.long = long
        self.requested_at = at
        self.granted = self.reported = False
        self.turn: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Wait until the place is granted."""
        self.turn = asyncio.get_running_loop().create_future()
        await self.turn


class Places:
    """The places of a node.

    Of the attempts that may have a place, the namespace that holds the fewest is served first, within it the pod that
    holds the fewest, and of a pod the oldest attempt. Among equals, the one that was served last comes last.

    Attributes:
        reason: of a probe that has waited too long.
        queue_durations: how long attempts waited for a place.
    """

    def __init__(self, count: int, wording: Wording) -> None:
        self.reason = wording.reason
        self.queue_durations = DurationHistogram(QUEUE_BUCKETS)
        self._wording = wording
        self._all, self._for_long = _Pool(count), _Pool(max(1, count // 2))
        self._waiting: dict[str, dict[tuple[Tenant, bool], deque[Place]]] = {}

    @property
    def in_flight(self) -> int:
        """The number of attempts in flight."""
        return self._all.count - self._all.free

    @property
    def queued_probes(self) -> int:
        """The number of waiting probes that were reported to wait too long."""
        return sum(
            place.reported
            for pods in self._waiting.values()
            for queue in pods.values()
            for place in queue
        )

    def request(self, tenant: Tenant, *, long: bool) -> Place:
        """Request a place for one attempt; unless it is `granted` at once, `wait` for it. Release it in any case."""
        place = Place(tenant, long, asyncio.get_running_loop().time())
        if not self._waiting and self._allows(tenant, long):
            self._grant(place)
        else:
            pods = self._waiting.setdefault(tenant.namespace, {})
            pods.setdefault((tenant, long), deque()).append(place)
            self._grant_next()
        return place

    def release(self, place: Place) -> None:
        """Give the place back, or end its request."""
        if place.granted:
            self._all.add(place.tenant, -1)
            if place.long:
                self._for_long.add(place.tenant, -1)
        else:
            self._unqueue(place)
        if self._waiting:
            self._grant_next()

    def _allows(self, tenant: Tenant, long: bool) -> bool:
        return self._all.allows(tenant) and not (long and not self._for_long.allows(tenant))

    def _grant(self, place: Place) -> None:
        place.granted = True
        self._all.add(place.tenant, 1)
        if place.long:
            self._for_long.add(place.tenant, 1)
        self.queue_durations.observe(asyncio.get_running_loop().time() - place.requested_at)
        if place.turn is not None and not place.turn.done():
            place.turn.set_result(None)

    def _unqueue(self, place: Place) -> None:
        """Remove a waiting attempt; its pod and namespace move to the end of their queues if they have more."""
        pods = self._waiting.pop(place.tenant.namespace)
        queue = pods.pop((place.tenant, place.long))
        queue.remove(place)
        if queue:
            pods[place.tenant, place.long] = queue
        if pods:
            self._waiting[place.tenant.namespace] = pods

    def _grant_next(self) -> None:
        while self._waiting and (place := self._next()) is not None:
            self._unqueue(place)
            self._grant(place)

    def _next(self) -> Place | None:
        held = self._all.held
        for namespace in sorted(self._waiting, key=lambda name: held[name]):
            pods = self._waiting[namespace]
            for tenant, long in sorted(pods, key=lambda pod: held[pod[0]]):
                if self._allows(tenant, long):
                    return pods[tenant, long][0]
        return None

    def describe(self, place: Place) -> str:
        """Why the attempt waits and what to do; mentions no namespace but its own."""
        tenant, words = place.tenant, self._wording
        attempts, pool = f"{words.attempt}s", self._all
        if place.long and not self._for_long.allows(tenant):
            attempts, pool = f"{attempts} with timeoutSeconds over {LONG_SECONDS:g}", self._for_long
        pod, namespace, all_ = (
            pool.held[tenant],
            pool.held[tenant.namespace],
            pool.count - pool.free,
        )
        if 2 * namespace < all_:
            whose, held, advice = "other pods", all_ - namespace, words.node_advice
        elif 2 * pod < namespace:
            whose, held, advice = f"namespace {tenant.namespace}", namespace, words.advice
        else:
            whose, held, advice = "this pod", pod, words.advice
        return (
            f"{words.reason}: no place to run the {words.attempt}; {attempts} of {whose} hold {held} of the "
            f"{pool.count} places that this node has for them, and the rest is kept for other pods; {advice}"
        )
