"""Caches the state of this node's containers, so that probes need no calls to the runtime.

Lists all containers once a second while there are subscribers. Calls for one status per new container and one per new
sandbox. If the runtime has a trusted event stream, events cause the lists instead. A list every 15 s then finds missed
events.

Source: kubelet pkg/kubelet/pleg/generic.go and evented.go, pkg/kubelet/kuberuntime (the last attempt is a container's status).
Differs: only subscribed containers get status calls. The runtime is unavailable when a list fails; a failed status call
affects its container alone. A stream is trusted after its first event, until a list shows a change without an event.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec
import structlog

from kruise_probe.daemon.cri.runtime import (
    ContainerNotFound,
    ContainerState,
    NotSupported,
    Runtime,
    RuntimeContainer,
    RuntimeFailure,
)
from kruise_probe.daemon.cri.status_cache import StatusCache

_log = structlog.get_logger(__name__)

LIST_INTERVAL_SECONDS: Final = 1.0
"""Between two lists while there are subscribers and no event stream is trusted."""

RECONCILE_INTERVAL_SECONDS: Final = 15.0
"""Between two lists otherwise."""

REQUESTED_INTERVAL_SECONDS: Final = 0.2
"""Between two lists that `request_list` requested. The first request causes a list at once."""

MAX_BACKOFF_SECONDS: Final = 2.0
"""Between two attempts while the runtime is unavailable. Short, because its socket is on the same machine."""

STREAM_RETRY_SECONDS: Final = 600.0
"""Until the event stream is tried again on a runtime without one: the runtime may have been upgraded."""

_NO_STATUS_YET: Final = "the runtime has not returned the status of the new container yet"


class ContainerKey(NamedTuple):
    pod_uid: str
    name: str


class ContainerView(msgspec.Struct, frozen=True):
    """The newest container of one name in one pod.

    `started_at`, `ips` and `host_network` are set for a running container. `ips` is empty for a pod in the host's
    network. If the status of a running container or of its sandbox is not available, its state is UNKNOWN and `problem`
    has the reason.
    """

    id: str
    state: ContainerState
    started_at: datetime | None = None
    ips: tuple[str, ...] = ()
    host_network: bool = False
    problem: str = ""


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
    running = container.state is ContainerState.RUNNING
    return running, container.attempt, container.created_at_ns


def ids_changed(
    before: Collection[RuntimeContainer], after: Collection[RuntimeContainer]
) -> set[str]:
    """Ids of containers that were added or removed, or changed their state."""
    states = {container.id: container.state for container in before}
    changed = {
        container.id for container in after if states.pop(container.id, None) != container.state
    }
    return changed | states.keys()


Callback = Callable[[], None]


class ContainerWatcher:
    """Keeps the newest container of every subscribed (pod, name); `find` reads from memory.

    Callbacks run on the event loop when the view of their container or `available` has changed.
    Cancelling `run` keeps the last views.

    Attributes:
        available: whether the last list succeeded; False before the first.
        problem: why the runtime is not available; empty when it is.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.available = False
        self.problem = "the containers of this node are not listed yet"
        self._runtime = runtime
        self._subscribers: dict[ContainerKey, list[Callback]] = {}
        self._newest: dict[ContainerKey, RuntimeContainer] = {}
        self._statuses = StatusCache(runtime.container_status, on_change=self._on_status_change)
        self._sandboxes = StatusCache(runtime.sandbox_status, on_change=self._on_status_change)
        self._views: dict[ContainerKey, ContainerView] = {}
        self._wake = asyncio.Event()
        self._list_interval = RECONCILE_INTERVAL_SECONDS
        self._list_is_requested = False
        self._requested_list_at = -math.inf
        self._ids_with_events: set[str] = set()
        self._stream_is_trusted = False
        self._has_listed = False

    def find(self, pod_uid: str, container_name: str) -> ContainerView | None:
        """The newest container of this name; None if there is none, or it is the first of this name and has no status yet."""
        return self._views.get(ContainerKey(pod_uid, container_name))

    def subscribe(self, pod_uid: str, container_name: str, callback: Callback) -> Callback:
        """Call `callback` at every change of this container. Return a function that unsubscribes."""
        key = ContainerKey(pod_uid, container_name)
        self._subscribers.setdefault(key, []).append(callback)
        container = self._newest.get(key)
        if container is None:
            self.request_list()
        elif self._lacks_status(container):
            self._wake.set()
        elif view := self._view(key):
            self._views[key] = view

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
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            _ = group.create_task(self._keep_listing(group), name="containers: list")
            _ = group.create_task(self._follow_events(), name="containers: events")

    async def _keep_listing(self, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        backoff = REQUESTED_INTERVAL_SECONDS
        listed_at = loop.time()
        list_is_due = True
        while True:
            if list_is_due:
                listed_at = loop.time()
                try:
                    await self._list()
                except RuntimeFailure as failure:
                    self._set_available(False, str(failure))
                    await asyncio.sleep(backoff)
                    backoff = min(backoff * 2, MAX_BACKOFF_SECONDS)
                    continue
                backoff = REQUESTED_INTERVAL_SECONDS
                self._publish(self._subscribers)
                self._set_available(True, "")
            for container in self._due_for_status():
                self._statuses.request(container.id, group)
                self._sandboxes.request(container.sandbox_id, group)
            list_is_due = await self._wait_for_work(listed_at)

    def _list_within(self, seconds: float) -> None:
        """Make the next list due `seconds` after the last one."""
        self._list_interval = min(self._list_interval, seconds)
        self._wake.set()

    def _due_at(self, listed_at: float) -> float:
        interval = self._list_interval
        if self._subscribers and not self._stream_is_trusted:
            interval = min(interval, LIST_INTERVAL_SECONDS)
        due = listed_at + interval
        if self._list_is_requested:
            due = min(due, self._requested_list_at + REQUESTED_INTERVAL_SECONDS)
        return due

    async def _wait_for_work(self, listed_at: float) -> bool:
        """True when the next list is due, False when a status call is due."""
        while not self._due_for_status():
            self._wake.clear()
            try:
                async with asyncio.timeout_at(self._due_at(listed_at)):
                    await self._wake.wait()
            except TimeoutError:
                return True
        return False

    async def _list(self) -> None:
        self._list_interval = RECONCILE_INTERVAL_SECONDS
        if self._list_is_requested:
            self._list_is_requested = False
            self._requested_list_at = asyncio.get_running_loop().time()
        ids_with_events, self._ids_with_events = self._ids_with_events, set()
        containers = await self._runtime.list_containers()
        before, self._newest = self._newest, newest(containers)
        if self._stream_is_trusted and not ids_with_events.issuperset(
            ids_changed(before.values(), self._newest.values())
        ):
            _log.debug("the event stream missed a container; listing every second")
            self._stream_is_trusted = False
        self._statuses.forget_others({container.id for container in self._newest.values()})
        self._sandboxes.forget_others({container.sandbox_id for container in self._newest.values()})

    def _due_for_status(self) -> list[RuntimeContainer]:
        """Subscribed containers that run and whose status call is due."""
        return [
            container
            for key in self._subscribers
            if (container := self._newest.get(key)) is not None
            and container.state is ContainerState.RUNNING
            and (
                self._statuses.is_due(container.id) or self._sandboxes.is_due(container.sandbox_id)
            )
        ]

    def _on_status_change(self, id: str) -> None:
        """Handle a response or failure for the id of a container or sandbox, or that the id is due again."""
        if self._statuses.failure(id) or self._sandboxes.failure(id):
            # The container may be gone, or the runtime unavailable. The next list shows which.
            self._list_within(LIST_INTERVAL_SECONDS)
        self._publish(
            key
            for key in self._subscribers
            if (container := self._newest.get(key)) and id in (container.id, container.sandbox_id)
        )

    def _lacks_status(self, container: RuntimeContainer) -> bool:
        return container.state is ContainerState.RUNNING and not (
            self._statuses.get(container.id) and self._sandboxes.get(container.sandbox_id)
        )

    def _failure(self, container: RuntimeContainer) -> RuntimeFailure | None:
        return self._statuses.failure(container.id) or self._sandboxes.failure(container.sandbox_id)

    def _publish(self, keys: Iterable[ContainerKey]) -> None:
        changed: list[ContainerKey] = []
        for key in keys:
            container = self._newest.get(key)
            previous = self._views.get(key)
            # Keep the view of the same container until there is a status. The address of a replaced container may
            # belong to another pod by now.
            if (
                container
                and (previous is None or previous.id == container.id)
                and self._lacks_status(container)
                and not self._failure(container)
            ):
                continue
            view = self._view(key)
            if view == previous:
                continue
            if view is None:
                del self._views[key]
            else:
                self._views[key] = view
            changed.append(key)
        self._notify(changed)

    def _view(self, key: ContainerKey) -> ContainerView | None:
        container = self._newest.get(key)
        if container is None:
            return None
        state, problem = container.state, ""
        if self._lacks_status(container):
            failure = self._failure(container)
            if isinstance(failure, ContainerNotFound):
                return None
            state, problem = ContainerState.UNKNOWN, str(failure or _NO_STATUS_YET)
        status = self._statuses.get(container.id)
        sandbox = self._sandboxes.get(container.sandbox_id)
        return ContainerView(
            id=container.id,
            state=state,
            started_at=status.started_at if status else None,
            ips=sandbox.ips if sandbox else (),
            host_network=bool(sandbox and sandbox.host_network),
            problem=problem,
        )

    def _set_available(self, available: bool, problem: str) -> None:
        changed, is_first = available != self.available, not self._has_listed
        self.available, self.problem, self._has_listed = available, problem, True
        if not changed and not is_first:
            return
        if available:
            _log.info("container runtime is available")
        else:
            _log.warning("container runtime is unavailable; probes wait for it", error=problem)
        if changed:
            self._notify(list(self._subscribers))

    def _notify(self, keys: Iterable[ContainerKey]) -> None:
        for key in keys:
            for callback in tuple(self._subscribers.get(key, ())):
                callback()

    async def _follow_events(self) -> None:
        while True:
            pause = MAX_BACKOFF_SECONDS
            try:
                async for container_id in self._runtime.events():
                    self._ids_with_events.add(container_id)
                    self._stream_is_trusted = True
                    self._list_within(LIST_INTERVAL_SECONDS)
            except NotSupported:
                pause = STREAM_RETRY_SECONDS
            except RuntimeFailure as failure:
                _log.debug("the event stream broke", error=str(failure))
            self._stream_is_trusted = False
            self._wake.set()
            await asyncio.sleep(pause)
