"""Caches the state of this node's containers, so that probes need no calls to the runtime.

Lists all containers once a second while there are subscribers. Calls for one status per new container and one per new
sandbox.

Source: kubelet pkg/kubelet/pleg/generic.go, pkg/kubelet/kuberuntime (the last attempt is a container's status).
Differs: only subscribed containers get status calls, in parallel; kubelet updates one pod after the other, so a call that
hangs delays all pods. The runtime is unavailable when a list fails; a failed status call affects its container alone.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from datetime import datetime
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec
import structlog

from kruise_probe.api.times import loop_time
from kruise_probe.daemon.cri.grpc_runtime import GrpcRuntime
from kruise_probe.daemon.cri.runtime import (
    ContainerNotFound,
    ContainerState,
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

_NOT_LISTED_YET: Final = "the containers of this node are not listed yet"
_NO_STATUS_YET: Final = "the runtime has not returned the status of the new container yet"

S = TypeVar("S")


class ContainerKey(NamedTuple):
    pod_uid: str
    name: str


class ContainerView(msgspec.Struct, frozen=True):
    """The newest container of one name in one pod.

    `started_at`, `ips` and `host_network` are set for a running container. `ips` is empty for a pod in the host's
    network. If the status of a running container or of its sandbox is not available, its state is UNKNOWN and `problem`
    has the reason. `exit_code` is set for an exited one, once the runtime has reported it.
    """

    id: str
    state: ContainerState
    started_at: datetime | None = None
    ips: tuple[str, ...] = ()
    host_network: bool = False
    problem: str = ""
    exit_code: int | None = None


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
        if other is None or _precedence(container) > _precedence(other):
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
        problem: why the runtime is not available; empty when it is.
    """

    def __init__(self, runtime: GrpcRuntime) -> None:
        self.problem = _NOT_LISTED_YET
        self._runtime = runtime
        self._subscribers: dict[ContainerKey, list[Callback]] = {}
        self._newest: dict[ContainerKey, RuntimeContainer] = {}
        self._starts = _StatusCache(runtime.started_at, self._on_status)
        self._sandboxes = _StatusCache(runtime.sandbox_status, self._on_status)
        self._exit_codes = _StatusCache(runtime.exit_code, self._on_status)
        self._views: dict[ContainerKey, ContainerView | None] = {}
        self._status_calls = asyncio.TaskGroup()
        self._wake = asyncio.Event()
        self._list_is_requested = False
        self._listed_at = -math.inf
        self._backoff_seconds = 0.0

    @property
    def available(self) -> bool:
        """Whether the last list succeeded; False before the first."""
        return not self.problem

    def is_known(self, pod_uid: str, container_name: str) -> bool:
        """Whether the runtime was asked for the containers, and for the status of this one if it runs."""
        if self.problem == _NOT_LISTED_YET:
            return False
        container = self._newest.get(ContainerKey(pod_uid, container_name))
        if container is None or container.state is not ContainerState.RUNNING:
            return True
        return self._has_response(container)

    def find(self, pod_uid: str, container_name: str) -> ContainerView | None:
        """The newest container of this name; None if there is none, or it is the first of this name and has no status yet."""
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
            self._newest = newest(await self._runtime.list_containers())
        except RuntimeFailure as failure:
            backoff = max(2 * self._backoff_seconds, REQUESTED_INTERVAL_SECONDS)
            self._backoff_seconds = min(backoff, MAX_BACKOFF_SECONDS)
            self._listed_at = loop_time()
            self._set_problem(str(failure))
            return
        self._backoff_seconds = 0.0
        ids = {container.id for container in self._newest.values()}
        self._starts.forget_others(ids)
        self._exit_codes.forget_others(ids)
        self._sandboxes.forget_others({container.sandbox_id for container in self._newest.values()})
        self._publish(self._subscribers)
        self._set_problem("")
        for key in self._subscribers:
            self._request_status(key)

    def _request_status(self, key: ContainerKey) -> None:
        """Call for the status of a running container and of its sandbox, or of an exited one, unless known or in flight.

        A pod's network without an address is not known: it may get one.
        """
        container = self._newest.get(key)
        if container is None:
            return
        if container.state is ContainerState.EXITED:
            self._exit_codes.request(container.id, self._status_calls)
        if container.state is not ContainerState.RUNNING:
            return
        self._starts.request(container.id, self._status_calls)
        sandbox = self._sandboxes.known.get(container.sandbox_id)
        # cri-dockerd reports no address, without an error, when its network plugin has failed once.
        no_address = False
        if sandbox is not None and not sandbox.host_network:
            no_address = not sandbox.ips
        self._sandboxes.request(container.sandbox_id, self._status_calls, again=no_address)

    def _on_status(self, id: str) -> None:
        """Handle a response or failure for the id of a container or sandbox."""
        keys: list[ContainerKey] = []
        for key in self._subscribers:
            container = self._newest.get(key)
            if container is not None and id in (container.id, container.sandbox_id):
                keys.append(key)
        self._publish(keys)

    def _publish(self, keys: Iterable[ContainerKey]) -> None:
        changed: list[ContainerKey] = []
        for key in keys:
            view = self._view(key)
            if view != self._views.get(key):
                self._views[key] = view
                changed.append(key)
        self._notify(changed)

    def _view(self, key: ContainerKey) -> ContainerView | None:
        container = self._newest.get(key)
        if container is None:
            return None
        sandbox = self._sandboxes.known.get(container.sandbox_id)
        view = ContainerView(
            id=container.id,
            state=container.state,
            started_at=self._starts.known.get(container.id),
            exit_code=self._exit_codes.known.get(container.id),
        )
        if sandbox is not None:
            view = msgspec.structs.replace(
                view,
                ips=sandbox.ips,
                host_network=sandbox.host_network,
            )
        is_known = sandbox is not None and container.id in self._starts.known
        if is_known or container.state is not ContainerState.RUNNING:
            return view
        return self._without_status(view, container, self._views.get(key))

    def _without_status(
        self, view: ContainerView, container: RuntimeContainer, previous: ContainerView | None
    ) -> ContainerView | None:
        """The view of a running container whose status, or that of its sandbox, is not known."""
        failure = self._starts.failures.get(container.id)
        if failure is None:
            failure = self._sandboxes.failures.get(container.sandbox_id)
        if isinstance(failure, ContainerNotFound):
            return None
        # Keep the view of the same container until there is a status. The address of a replaced container may
        # belong to another pod by now.
        if failure is None and (previous is None or previous.id == container.id):
            return previous
        problem = _NO_STATUS_YET
        if failure is not None:
            problem = str(failure)
        return msgspec.structs.replace(
            view,
            state=ContainerState.UNKNOWN,
            problem=problem,
        )

    def _has_response(self, container: RuntimeContainer) -> bool:
        """Whether both status calls of a container have returned, also with a failure."""
        id = container.id
        sandbox_id = container.sandbox_id
        if id in self._starts.failures or sandbox_id in self._sandboxes.failures:
            return True
        return id in self._starts.known and sandbox_id in self._sandboxes.known

    def _set_problem(self, problem: str) -> None:
        before = self.problem
        self.problem = problem
        changed = bool(before) != bool(problem)
        if changed and not problem:
            _log.info("container runtime is available")
        elif changed or before == _NOT_LISTED_YET:
            _log.warning("container runtime is unavailable; probes wait for it", error=problem)
        if changed or before == _NOT_LISTED_YET:
            self._notify(list(self._subscribers))

    def _notify(self, keys: Iterable[ContainerKey]) -> None:
        for key in keys:
            for callback in tuple(self._subscribers.get(key, ())):
                callback()


class _StatusCache(Generic[S]):
    """The status of containers or of sandboxes: one call per id, another after each list while there is no response.

    A call that hangs or fails delays no other call. It does not make the runtime unavailable; only a failed list does.

    Attributes:
        known: the responses, by id.
        failures: the errors of the last calls, by id.
    """

    def __init__(
        self, call: Callable[[str], Awaitable[S]], on_change: Callable[[str], None]
    ) -> None:
        """`on_change` is called with the id after each response or failure."""
        self.known: dict[str, S] = {}
        self.failures: dict[str, RuntimeFailure] = {}
        self._call = call
        self._on_change = on_change
        self._in_flight: set[str] = set()
        self._places = asyncio.Semaphore(_MAX_STATUS_CALLS)

    def request(self, id: str, calls: asyncio.TaskGroup, *, again: bool = False) -> None:
        """Start the call for the id, unless its response is known (and not wanted `again`) or a call is in flight."""
        is_wanted = again or id not in self.known
        if not is_wanted or id in self._in_flight:
            return
        self._in_flight.add(id)
        call = self._call_for(id)
        _ = calls.create_task(call, name=f"status of {id}")

    async def _call_for(self, id: str) -> None:
        try:
            async with self._places:
                self.known[id] = await self._call(id)
            self.failures.pop(id, None)
        except RuntimeFailure as failure:
            _log.debug("status call failed", id=id, error=str(failure))
            # The first text stays, as in `state.attempt_blocked`.
            if type(self.failures.get(id)) is not type(failure):
                self.failures[id] = failure
        finally:
            self._in_flight.discard(id)
        self._on_change(id)

    def forget_others(self, ids: Set[str]) -> None:
        """Forget all ids but these."""
        for statuses in (self.known, self.failures):
            for id in statuses.keys() - ids:
                del statuses[id]
