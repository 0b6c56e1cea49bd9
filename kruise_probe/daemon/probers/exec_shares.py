"""Selects the command that runs next: the node's places are shared by namespace, then by pod. Pure.

CRI ExecSync runs until its own timeout, so a place cannot be revoked. Therefore a tenant gets a place only if enough
places stay free for the others:

- Every namespace that runs exec probes on this node has an equal share of the places, and every pod an equal share of
  its namespace's. Up to its share a tenant gets any free place.
- Above its share it gets a place only while the others could still take all of their shares, or while less than a
  quarter of the places is in use.
- Commands with a timeout above `LONG_SECONDS` get a part of these shares only, and never the last quarter of the
  places, because they could hold a place for an hour.

Guarantee: of 16 places, three hostile namespaces leave four to the others, and six leave two; with seven the others
may have to wait up to `LONG_SECONDS`. A new namespace reduces the shares of the others as soon as their
commands have ended. A namespace is not protected from its own pods beyond their shares.
"""

import enum
import itertools
import math
from collections.abc import Collection
from typing import Final, Generic, NamedTuple, TypeVar

LONG_SECONDS: Final = 10.0
"""A command with a longer timeout is long: others cannot wait until it ends."""

LEAST_ACTIVE_SECONDS: Final = 60.0
"""How long a tenant keeps its share after its last command, at least: long enough for a pause of its probes."""

MOST_ACTIVE_SECONDS: Final = 600.0
"""And at most, so that deleted tenants do not reduce the shares of the others for hours."""


class Account:
    """How many places a tenant holds, and how many of them for long commands."""

    def __init__(self) -> None:
        self.held = self.held_long = 0


class SharedPlaces(NamedTuple):
    """Places that several tenants share, of which `in_use` are held."""

    places: int
    in_use: int
    members: Collection[Account]

    @property
    def share(self) -> int:
        """How many places each member may always hold."""
        return max(1, self.places // max(len(self.members), 1))

    def allows(self, held: int) -> bool:
        """Whether a member that holds `held` places may take another one."""
        free, share = self.places - self.in_use, self.share
        if free <= 0:
            return False
        if held < share:
            return True
        unclaimed = sum(max(share - each.held, 0) for each in self.members)
        return free > min(unclaimed, self.places - self.places // 4)


class Tenant(NamedTuple):
    """The pod whose probe runs a command."""

    namespace: str
    pod_uid: str


class HeldBy(enum.Enum):
    """Whose commands hold the places that a request waits for."""

    POD = "pod"
    NAMESPACE = "namespace"
    NODE = "node"


class Limit(NamedTuple):
    """Why a request waits: all `places` that its pod, its namespace or the node may hold (for long commands) are held."""

    held_by: HeldBy
    places: int
    long: bool


class PlaceRequest:
    """The request of one command for a place; from `take` to `remove` it holds one.

    Attributes:
        number: grows with each request, so that older requests come first.
    """

    def __init__(self, tenant: Tenant, timeout_seconds: float) -> None:
        self.tenant = tenant
        self.timeout_seconds = timeout_seconds
        self.number = 0
        self.has_place = False

    @property
    def long(self) -> bool:
        return self.timeout_seconds > LONG_SECONDS


R = TypeVar("R", bound=PlaceRequest)


class _PodAccount(Account, Generic[R]):
    """The places of one pod, and its waiting requests by `long`, oldest first."""

    def __init__(self) -> None:
        super().__init__()
        self.active_until = -math.inf
        self.waiting: dict[bool, dict[R, None]] = {False: {}, True: {}}

    @property
    def waits(self) -> bool:
        return bool(self.waiting[False] or self.waiting[True])

    def oldest(self, *, long_too: bool) -> R | None:
        short = next(iter(self.waiting[False]), None)
        long = next(iter(self.waiting[True]), None) if long_too else None
        if short is None or long is None:
            return short or long
        return short if short.number < long.number else long


class _NamespaceAccount(Account, Generic[R]):
    """The places of one namespace, and its waiting pods; the pod that was served last comes last."""

    def __init__(self) -> None:
        super().__init__()
        self.pods: dict[str, _PodAccount[R]] = {}
        self.waiting: dict[_PodAccount[R], None] = {}


Key = TypeVar("Key")


def _requeue(queue: dict[Key, None], tenant: Key, *, waits: bool) -> None:
    """Move a served tenant to the end of the queue if it has more requests; else remove it."""
    queue.pop(tenant, None)
    if waits:
        queue[tenant] = None


class ExecShares(Generic[R]):
    """The places of a node, their holders, and the waiting requests.

    Invariants: no more than `places` are held. Of the requests that may have a place, the namespace that holds the
    fewest is served first, within it the pod that holds the fewest, and of a pod the oldest request. Of equal tenants
    the one that was served last comes last.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._places_for_long = max(1, places - max(1, places // 4))
        self._node = Account()
        self._namespaces: dict[str, _NamespaceAccount[R]] = {}
        self._waiting: dict[_NamespaceAccount[R], None] = {}
        self._numbers = itertools.count()
        self._prune_at = -math.inf

    @property
    def held(self) -> int:
        return self._node.held

    def add(self, request: R, *, now: float, period_seconds: float) -> None:
        """Queue the request. Its tenant keeps its share until two of its periods have passed without another."""
        if now >= self._prune_at:
            self._prune(now)
        namespace = self._namespaces.setdefault(request.tenant.namespace, _NamespaceAccount())
        pod = namespace.pods.setdefault(request.tenant.pod_uid, _PodAccount())
        active = min(max(2 * period_seconds, LEAST_ACTIVE_SECONDS), MOST_ACTIVE_SECONDS)
        pod.active_until = max(pod.active_until, now + active)
        request.number = next(self._numbers)
        pod.waiting[request.long][request] = None
        namespace.waiting[pod] = None
        self._waiting[namespace] = None

    def lengthen(self, request: R, timeout_seconds: float) -> None:
        """Give a request a longer timeout. One that has a place must not become long."""
        _, pod = self._tenant_of(request)
        waited = request in pod.waiting[request.long]
        pod.waiting[request.long].pop(request, None)
        request.timeout_seconds = timeout_seconds
        if waited:
            pod.waiting[request.long][request] = None

    def take(self) -> R | None:
        """Give a place to the request that is next; None when none may have one."""
        found = self._next() if self._waiting and self._node.held < self._places else None
        if found is not None:
            self._stop_waiting(found)
            found.has_place = True
            self._count_place(found, 1)
        return found

    def remove(self, request: R) -> None:
        """Release the place of the request, or remove it from the queue."""
        if request.has_place:
            request.has_place = False
            self._count_place(request, -1)
        else:
            self._stop_waiting(request)

    def limit_of(self, request: R) -> Limit:
        """Why a request that waits has no place yet."""
        namespace, pod = self._tenant_of(request)
        node = self._node_places()
        if request.long:
            of_namespace, of_pod = _limits_of_long(node)
            if pod.held_long >= of_pod:
                return Limit(HeldBy.POD, of_pod, True)
            if namespace.held_long >= of_namespace:
                return Limit(HeldBy.NAMESPACE, of_namespace, True)
            if self._node.held_long >= self._places_for_long:
                return Limit(HeldBy.NODE, self._places_for_long, True)
        if (
            pod.held
            >= SharedPlaces(max(node.share, namespace.held), 0, namespace.pods.values()).share
        ):
            return Limit(HeldBy.POD, pod.held, False)
        if namespace.held >= node.share:
            return Limit(HeldBy.NAMESPACE, namespace.held, False)
        return Limit(HeldBy.NODE, self._places, False)

    # Who is next.

    def _next(self) -> R | None:
        node = self._node_places()
        for namespace in sorted(self._waiting, key=lambda each: each.held):
            if not node.allows(namespace.held):
                return None
            if (request := self._next_of(namespace, node)) is not None:
                return request
        return None

    def _next_of(self, namespace: _NamespaceAccount[R], node: SharedPlaces) -> R | None:
        """The request of the pod that holds the fewest places, of those whose requests may run."""
        found, fewest = None, self._places
        for pod in namespace.waiting:
            if pod.held < fewest:
                request = pod.oldest(long_too=self._may_be_long(namespace, pod, node))
                if request is not None:
                    found, fewest = request, pod.held
            if not fewest:
                break
        # What the pods divide: the share of their namespace, or one more than it holds.
        places = SharedPlaces(
            max(node.share, namespace.held + 1), namespace.held, namespace.pods.values()
        )
        return found if found is not None and places.allows(fewest) else None

    def _may_be_long(
        self, namespace: _NamespaceAccount[R], pod: _PodAccount[R], node: SharedPlaces
    ) -> bool:
        of_namespace, of_pod = _limits_of_long(node)
        return (
            self._node.held_long < self._places_for_long
            and namespace.held_long < of_namespace
            and pod.held_long < of_pod
        )

    def _node_places(self) -> SharedPlaces:
        return SharedPlaces(self._places, self._node.held, self._namespaces.values())

    # Accounts.

    def _tenant_of(self, request: R) -> tuple[_NamespaceAccount[R], _PodAccount[R]]:
        namespace = self._namespaces[request.tenant.namespace]
        return namespace, namespace.pods[request.tenant.pod_uid]

    def _stop_waiting(self, request: R) -> None:
        namespace, pod = self._tenant_of(request)
        pod.waiting[request.long].pop(request, None)
        _requeue(namespace.waiting, pod, waits=pod.waits)
        _requeue(self._waiting, namespace, waits=bool(namespace.waiting))

    def _count_place(self, request: R, number: int) -> None:
        for account in (self._node, *self._tenant_of(request)):
            account.held += number
            account.held_long += number * request.long

    def _prune(self, now: float) -> None:
        """Remove inactive tenants, at most once a second."""
        self._prune_at = now + 1.0
        for name, namespace in tuple(self._namespaces.items()):
            for uid, pod in tuple(namespace.pods.items()):
                if now > pod.active_until and not pod.held and not pod.waits:
                    del namespace.pods[uid]
            if not namespace.pods:
                del self._namespaces[name]


def _limits_of_long(node: SharedPlaces) -> tuple[int, int]:
    """How many places the long commands of a namespace, and of a pod, may hold."""
    return max(1, node.share // 4), max(1, node.share // 8)
