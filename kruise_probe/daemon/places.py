"""Places of attempts: a limited number in flight at once, shared by namespace, then by pod.

A place cannot be revoked before the attempt ends. Therefore a tenant gets one only if enough places stay free for the
others:

- Every namespace that runs probes on this node has an equal share of the places, and every pod an equal share of its
  namespace's. Up to its share a tenant gets any free place.
- Above its share it gets a place only while the others could still take all of their shares, or while less than a
  quarter of the places is in use.
- Attempts with a timeout above `LONG_SECONDS` get a part of these shares only, and never the last quarter of the
  places, because they could hold a place for an hour.

Guarantee: of 16 places, three hostile namespaces leave four to the others, and six leave two; with seven the others
may have to wait up to `LONG_SECONDS`. A new namespace reduces the shares of the others as soon as their attempts have
ended. A namespace is not protected from its own pods beyond their shares.

Differs: kubelet limits neither execs nor sockets. A hundred execs that are due together are a hundred calls at once.
"""

import asyncio
import math
from typing import Final, NamedTuple, Self

from kruise_probe.daemon.probers.prober import Reason
from kruise_probe.histogram import DurationHistogram

LONG_SECONDS: Final = 10.0
"""An attempt with a longer timeout is long: others cannot wait until it ends."""

ACTIVE_SECONDS: Final = 120.0
"""How long a tenant keeps its share after its last attempt: long enough for a pause of its probes."""

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


class _Account:
    """The places that a node, namespace or pod holds, its members, and its members that wait.

    Attributes:
        members: namespaces of a node, pods of a namespace.
        waiting: those with requests; the one that was served last comes last.
        requests: of a pod, by `long`, oldest first.
    """

    def __init__(self) -> None:
        self.held = self.held_long = 0
        self.active_until = -math.inf
        self.members: dict[str, _Account] = {}
        self.waiting: dict[_Account, None] = {}
        self.requests: tuple[dict[Place, None], dict[Place, None]] = ({}, {})

    def member(self, name: str) -> "_Account":
        account = self.members.get(name)
        if account is None:
            account = self.members[name] = _Account()
        return account

    def share(self, places: int) -> int:
        """How many of `places` each member may always hold."""
        return max(1, places // max(len(self.members), 1))

    def allows(self, places: int, held: int) -> bool:
        """Whether a member that holds `held` of `places` may take another one."""
        free = places - self.held
        if free <= 0 or self.held < places // 4:
            return free > 0
        share = self.share(places)
        return held < share or free > sum(
            max(share - each.held, 0) for each in self.members.values()
        )


class Place:
    """The place of one attempt: waits for it on entry, releases it on exit.

    Attributes:
        waiting_since: loop time since which it waits; None unless it waits.
        reported: set by the probe that published that it waits too long.
    """

    __slots__ = ("_places", "has_place", "long", "reported", "tenant", "turn", "waiting_since")

    def __init__(self, places: "Places", tenant: Tenant, long: bool) -> None:
        self._places = places
        self.tenant = tenant
        self.long = long
        self.has_place = False
        self.reported = False
        self.turn: asyncio.Future[None] | None = None
        self.waiting_since: float | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self.waiting_since = since = loop.time()
        self._places.enter(self, since)
        if not self.has_place:
            self.turn = loop.create_future()
            try:
                await self.turn
            except BaseException:
                self._places.leave(self)
                raise
        self.waiting_since = None
        self._places.queue_durations.observe(loop.time() - since)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._places.leave(self)

    @property
    def why_queued(self) -> str:
        """Why it waits and what to do; mentions no namespace but its own."""
        return self._places.describe(self)


class Places:
    """The places of a node.

    Invariants: no more than `count` are held. Of the requests that may have a place, the namespace that holds the fewest
    is served first, within it the pod that holds the fewest, and of a pod the oldest request.

    Attributes:
        queue_durations: how long attempts waited for a place.
    """

    def __init__(self, count: int, wording: Wording) -> None:
        self.queue_durations = DurationHistogram(QUEUE_BUCKETS)
        self._count = count
        self._count_for_long = max(1, count - max(1, count // 4))
        self._wording = wording
        self._node = _Account()
        self._prune_at = -math.inf

    def place(self, tenant: Tenant, *, long: bool) -> Place:
        """A place for one attempt; use it with `async with`."""
        return Place(self, tenant, long)

    @property
    def reason(self) -> Reason:
        """The reason of a probe that has waited too long."""
        return self._wording.reason

    @property
    def in_flight(self) -> int:
        """The number of attempts in flight."""
        return self._node.held

    @property
    def queued_probes(self) -> int:
        """The number of waiting probes that were reported to wait too long."""
        return sum(
            place.reported
            for namespace in self._node.waiting
            for pod in namespace.waiting
            for requests in pod.requests
            for place in requests
        )

    def enter(self, place: Place, now: float) -> None:
        if now >= self._prune_at:
            self._prune(now)
        namespace, pod = self._accounts(place)
        pod.active_until = now + ACTIVE_SECONDS
        if not self._node.waiting and self._allows(namespace, pod, long=place.long):
            self._grant(place)
            return
        pod.requests[place.long][place] = None
        namespace.waiting[pod] = None
        self._node.waiting[namespace] = None
        self._grant_next()

    def leave(self, place: Place) -> None:
        if place.has_place:
            place.has_place = False
            self._add(place, -1)
        else:
            self._stop_waiting(place)
        self._grant_next()

    def _grant_next(self) -> None:
        while self._node.waiting and (place := self._next()) is not None:
            self._stop_waiting(place)
            self._grant(place)

    def _grant(self, place: Place) -> None:
        place.has_place = True
        self._add(place, 1)
        if place.turn is not None and not place.turn.done():
            place.turn.set_result(None)

    def _next(self) -> Place | None:
        for namespace in sorted(self._node.waiting, key=_held):
            if not self._node.allows(self._count, namespace.held):
                return None
            for pod in sorted(namespace.waiting, key=_held):
                runnable = [
                    next(iter(pod.requests[long]))
                    for long in (False, True)
                    if pod.requests[long] and self._allows(namespace, pod, long=long)
                ]
                if runnable:
                    return min(runnable, key=_since)
        return None

    def _allows(self, namespace: _Account, pod: _Account, *, long: bool) -> bool:
        """Whether the pod may take another place now."""
        node, share = self._node, self._node.share(self._count)
        if long and (
            node.held_long >= self._count_for_long
            or namespace.held_long >= _long_places(share, 4)
            or pod.held_long >= _long_places(share, 8)
        ):
            return False
        # What the pods divide: the share of their namespace, or one more than it holds.
        return node.allows(self._count, namespace.held) and namespace.allows(
            max(share, namespace.held + 1), pod.held
        )

    def describe(self, place: Place) -> str:
        node, share = self._node, self._node.share(self._count)
        namespace, pod = self._accounts(place)
        words = self._wording
        of_pod, of_namespace = "of this pod", f"of namespace {place.tenant.namespace}"
        whose, held = "of other pods", self._count_for_long if place.long else self._count
        if place.long and pod.held_long >= _long_places(share, 8):
            whose, held = of_pod, _long_places(share, 8)
        elif place.long and namespace.held_long >= _long_places(share, 4):
            whose, held = of_namespace, _long_places(share, 4)
        elif place.long and node.held_long >= self._count_for_long:
            pass
        elif pod.held >= namespace.share(max(share, namespace.held)):
            whose, held = of_pod, pod.held
        elif namespace.held >= share:
            whose, held = of_namespace, namespace.held
        which = f"{words.attempt}s with timeoutSeconds over {LONG_SECONDS:g}"
        advice = words.node_advice if whose == "of other pods" else words.advice
        return (
            f"{words.reason}: no place to run the {words.attempt}; {which if place.long else f'{words.attempt}s'} {whose} "
            f"hold the {held} of this node's {self._count} places that they may hold; {advice}"
        )

    def _accounts(self, place: Place) -> tuple[_Account, _Account]:
        namespace = self._node.member(place.tenant.namespace)
        return namespace, namespace.member(place.tenant.pod_uid)

    def _add(self, place: Place, number: int) -> None:
        for account in (self._node, *self._accounts(place)):
            account.held += number
            account.held_long += number * place.long

    def _stop_waiting(self, place: Place) -> None:
        """Remove the request; its tenants move to the end of their queues if they have more."""
        namespace, pod = self._accounts(place)
        pod.requests[place.long].pop(place, None)
        namespace.waiting.pop(pod, None)
        if any(pod.requests):
            namespace.waiting[pod] = None
        self._node.waiting.pop(namespace, None)
        if namespace.waiting:
            self._node.waiting[namespace] = None

    def _prune(self, now: float) -> None:
        """Remove inactive tenants, at most once a second."""
        self._prune_at = now + 1.0
        for name, namespace in tuple(self._node.members.items()):
            for uid, pod in tuple(namespace.members.items()):
                if now > pod.active_until and not pod.held and not any(pod.requests):
                    del namespace.members[uid]
            if not namespace.members:
                del self._node.members[name]


def _held(account: _Account) -> int:
    return account.held


def _since(place: Place) -> float:
    return place.waiting_since or 0.0


def _long_places(share: int, part: int) -> int:
    return max(1, share // part)
