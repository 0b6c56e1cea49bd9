"""Caches the state of this node's containers, so that probes need no calls to the runtime.

Lists all containers once a second while there are subscribers. Calls for one status per new container and one per new
sandbox.

Source: kubelet pkg/kubelet/pleg/generic.go, pkg/kubelet/kuberuntime (the last attempt is a container's status).
Differs: only subscribed containers get status calls, in parallel; kubelet updates one pod after the other, so a call that
hangs delays all pods. The runtime is unavailable when a list fails; a failed status call affects its container alone.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence, Set
from datetime import datetime
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec
import structlog

from kruise_probe.api.times import loop_time
from kruise_probe.daemon.cri.grpc_runtime import GrpcRuntime
from kruise_probe.daemon.cri.runtime import (
    ContainerNotFound,
    ContainerState,
    ContainerStatus,
    RuntimeContainer,
    RuntimeFailure,
)

_log = structlog.get_logger(__name__)

LIST_INTERVAL_SECONDS: Final = 1.0
"""Between two lists while there are subscribers. A failed status call is repeated after the next list."""

IDLE_INTERVAL_SECONDS: Final = 15.0
"""Between two lists without subscribers. They show whether the runtime is available."""

REQUESTED_INTERVAL_SECONDS: Final = 0.2
"""Least time between two lists, if `request_list` requested the second one."""

MAX_BACKOFF_SECONDS: Final = 2.0
"""Between two attempts while the runtime is unavailable. Short, because its socket is on the same machine."""

_MAX_STATUS_CALLS: Final = 8
"""In flight at once, of containers and of sandboxes."""

K = TypeVar("K", bound=Hashable)
S = TypeVar("S")


class ContainerKey(NamedTuple):
    pod_uid: str
    name: str


class ContainerView(msgspec.Struct, frozen=True):
    """The newest container of one name in one pod.

    Attributes:
        state: UNKNOWN if the status of a running container or of its sandbox is not available.
        started_at, ips, host_network: of a running one; `ips` is empty for a pod in the host's network.
        problem: why the state is UNKNOWN, if the runtime has said so.
        exit_code: of an exited one, once the runtime has reported it.
    """

    id: str
    state: ContainerState
    started_at: datetime | None = None
    ips: tuple[str, ...] = ()
    host_network: bool = False
    problem: str = ""
    exit_code: int | None = None


MISSING: Final = ContainerView("", ContainerState.MISSING)


def newest(containers: Sequence[RuntimeContainer]) -> dict[ContainerKey, RuntimeContainer]:
    """The container of each name in each pod: a running one, else the highest attempt, then the latest creation time.

    A runtime also lists exited containers and containers of replaced sandboxes.
    A runtime may keep a newer container that was only created beside the one that runs. A new sandbox may restart the
    attempt numbers, and its containers run only after those of the old sandbox have exited.
    """
    chosen: dict[ContainerKey, RuntimeContainer] = {}
    for container in containers:
        if not container.pod_uid:
            continue
        key = ContainerKey(container.pod_uid, container.name)
        other = chosen.get(key)
        if other is not None and _precedence(container) <= _precedence(other):
            continue
        chosen[key] = container
    return chosen


def _precedence(container: RuntimeContainer) -> tuple[bool, int, int]:
    is_running = container.state is ContainerState.RUNNING
    return is_running, container.attempt, container.created_at_ns


Callback = Callable[[], None]


class ContainerWatcher:
    """Keeps the newest container of every subscribed (pod, name); `find` reads from memory.

    Callbacks run on the event loop when the view of their container or `available` has changed.
    Cancelling `run` keeps the last views.

    Attributes:
        available: whether the last list succeeded; False before the first.
        problem: why it failed; empty before the first.
    """

    def __init__(self, runtime: GrpcRuntime) -> None:
        self.available = False
        self.problem = ""
        self._runtime = runtime
        self._subscribers: dict[ContainerKey, list[Callback]] = {}
        self._newest: dict[ContainerKey, RuntimeContainer] = {}
        self._views: dict[ContainerKey, ContainerView | None] = {}
        self._status_calls = asyncio.TaskGroup()
        self._statuses = _StatusCache(self._status_of, self._on_status, self._status_calls)
        self._sandboxes = _StatusCache(runtime.sandbox_status, self._on_status, self._status_calls)
        self._wake = asyncio.Event()
        self._list_is_requested = False
        self._listed_at = -math.inf
        self._backoff_seconds = 0.0

    def find(self, pod_uid: str, container_name: str) -> ContainerView | None:
        """The newest container of this name; None while the runtime has not said yet what is with it."""
        return self._views.get(ContainerKey(pod_uid, container_name))

    def subscribe(self, pod_uid: str, container_name: str, callback: Callback) -> Callback:
        """Call `callback` at every change of this container. Return a function that unsubscribes."""
        key = ContainerKey(pod_uid, container_name)
        self._subscribers.setdefault(key, []).append(callback)
        if key in self._newest:
            self._request_status(key)
            self._views[key] = self._view(key)
            self._wake.set()  # The list may be due earlier.
        else:
            self.request_list()

        def unsubscribe() -> None:
            callbacks = self._subscribers.get(key, [])
            if callback in callbacks:
                callbacks.remove(callback)
            if not callbacks:
                self._subscribers.pop(key, None)
                self._views.pop(key, None)

        return unsubscribe

    def request_list(self) -> None:
        """Request a list within 0.2 s: the caller knows of a container that was added or removed."""
        self._list_is_requested = True
        self._wake.set()

    async def run(self) -> None:
        """Watch until cancelled; once only."""
        async with self._status_calls:
            while True:
                await self._until_list_is_due()
                await self._list()

    async def _until_list_is_due(self) -> None:
        while True:
            self._wake.clear()
            try:
                async with asyncio.timeout_at(self._listed_at + self._interval()):
                    await self._wake.wait()
            except TimeoutError:
                return

    def _interval(self) -> float:
        if self._backoff_seconds:
            return self._backoff_seconds
        if self._list_is_requested:
            return REQUESTED_INTERVAL_SECONDS
        if self._subscribers:
            return LIST_INTERVAL_SECONDS
        return IDLE_INTERVAL_SECONDS

    async def _list(self) -> None:
        self._list_is_requested = False
        self._listed_at = loop_time()
        try:
            listed = await self._runtime.list_containers()
        except RuntimeFailure as failure:
            self._record_failure(str(failure))
            return
        self._newest = newest(listed)
        containers = set(self._newest.values())
        sandboxes = {container.sandbox_id for container in containers}
        self._statuses.forget_others(containers)
        self._sandboxes.forget_others(sandboxes)
        changed = self._update_views(self._subscribers)
        if not self.available:
            _log.info("container runtime is available")
            changed = list(self._subscribers)
        self.available = True
        self.problem = ""
        self._backoff_seconds = 0.0
        self._notify(changed)
        for key in self._subscribers:
            self._request_status(key)

    def _record_failure(self, problem: str) -> None:
        is_new = not self.problem
        self.available = False
        self.problem = problem
        backoff = max(2 * self._backoff_seconds, REQUESTED_INTERVAL_SECONDS)
        self._backoff_seconds = min(backoff, MAX_BACKOFF_SECONDS)
        self._listed_at = loop_time()
        if is_new:
            _log.warning("container runtime is unavailable; probes wait for it", error=problem)
            everyone = list(self._subscribers)
            self._notify(everyone)

    def _request_status(self, key: ContainerKey) -> None:
        """Call for the status of a running container and of its sandbox, or of an exited one, unless known or in flight.

        A pod's network without an address is not known: it may get one.
        """
        container = self._newest.get(key)
        if container is None:
            return
        if container.state in (ContainerState.RUNNING, ContainerState.EXITED):
            self._statuses.request(container)
        if container.state is not ContainerState.RUNNING:
            return
        sandbox = self._sandboxes.known.get(container.sandbox_id)
        # cri-dockerd reports no address, without an error, when its network plugin has failed once.
        no_address = False
        if sandbox is not None and not sandbox.host_network:
            no_address = not sandbox.ips
        self._sandboxes.request(container.sandbox_id, again=no_address)

    async def _status_of(self, container: RuntimeContainer) -> ContainerStatus:
        return await self._runtime.container_status(container.id)

    def _on_status(self, subject: RuntimeContainer | str) -> None:
        """Handle a response or failure for a container, or for the id of a sandbox."""
        keys: list[ContainerKey] = []
        for key in self._subscribers:
            container = self._newest.get(key)
            if container is None:
                continue
            if subject in (container, container.sandbox_id):
                keys.append(key)
        changed = self._update_views(keys)
        self._notify(changed)

    def _update_views(self, keys: Iterable[ContainerKey]) -> list[ContainerKey]:
        """Return those that have changed."""
        changed: list[ContainerKey] = []
        for key in keys:
            view = self._view(key)
            if view != self._views.get(key):
                self._views[key] = view
                changed.append(key)
        return changed

    def _view(self, key: ContainerKey) -> ContainerView | None:
        container = self._newest.get(key)
        if container is None:
            return MISSING
        status = self._statuses.known.get(container)
        if container.state is not ContainerState.RUNNING:
            exit_code = None
            if status is not None:
                exit_code = status.exit_code
            return ContainerView(container.id, container.state, exit_code=exit_code)
        sandbox = self._sandboxes.known.get(container.sandbox_id)
        if status is not None and sandbox is not None:
            return ContainerView(
                container.id,
                container.state,
                status.started_at,
                sandbox.ips,
                sandbox.host_network,
            )
        failure = self._statuses.failures.get(container)
        if failure is None:
            failure = self._sandboxes.failures.get(container.sandbox_id)
        if failure is None:
            return None
        if isinstance(failure, ContainerNotFound):
            return MISSING
        return ContainerView(container.id, ContainerState.UNKNOWN, problem=str(failure))

    def _notify(self, keys: Iterable[ContainerKey]) -> None:
        for key in keys:
            callbacks = self._subscribers.get(key, ())
            for callback in tuple(callbacks):
                callback()


class _StatusCache(Generic[K, S]):
    """The status of containers or of sandboxes: one call for each, another after each list while there is no response.

    A call that hangs or fails delays no other call. It does not make the runtime unavailable; only a failed list does.

    Attributes:
        known: the responses.
        failures: the errors of the last calls.
    """

    def __init__(
        self,
        call: Callable[[K], Awaitable[S]],
        on_change: Callable[[K], None],
        calls: asyncio.TaskGroup,
    ) -> None:
        """`on_change` is called after each response or failure."""
        self.known: dict[K, S] = {}
        self.failures: dict[K, RuntimeFailure] = {}
        self._call = call
        self._on_change = on_change
        self._calls = calls
        self._in_flight: set[K] = set()
        self._places = asyncio.Semaphore(_MAX_STATUS_CALLS)

    def request(self, subject: K, *, again: bool = False) -> None:
        """Start the call, unless its response is known (and not wanted `again`) or a call is in flight."""
        is_wanted = again or subject not in self.known
        if not is_wanted or subject in self._in_flight:
            return
        self._in_flight.add(subject)
        call = self._request(subject)
        _ = self._calls.create_task(call, name="status call")

    async def _request(self, subject: K) -> None:
        try:
            async with self._places:
                response = await self._call(subject)
            self.known[subject] = response
            self.failures.pop(subject, None)
        except RuntimeFailure as failure:
            _log.debug("status call failed", of=str(subject), error=str(failure))
            # The first text stays, as in `transitions.attempt_blocked`.
            before = self.failures.get(subject)
            if type(before) is not type(failure):
                self.failures[subject] = failure
        finally:
            self._in_flight.discard(subject)
        self._on_change(subject)

    def forget_others(self, subjects: Set[K]) -> None:
        """Forget all but these."""
        for statuses in (self.known, self.failures):
            forgotten = statuses.keys() - subjects
            for subject in forgotten:
                del statuses[subject]
