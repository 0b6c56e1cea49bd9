"""What the containers of this node are doing, known without asking for each probe.

One list a second for the whole node while somebody waits for news, one status per new container, one per new
sandbox. Where the runtime has an event stream that has proven itself, lists follow its events instead, and one
every 15 seconds makes sure that no event was missed.

Source: kubelet pkg/kubelet/pleg/generic.go and evented.go.
Differs: only containers that somebody subscribed to are looked at closer; the runtime is away when it does not list,
and a status that fails costs its container alone; a stream is trusted when it has sent something, and no longer
when a list shows what it did not tell.
"""

import asyncio
import math
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

import msgspec
import structlog

from kruise_probe.daemon.cri.answers import Answers
from kruise_probe.daemon.cri.newest import ContainerKey, ids_changed, newest
from kruise_probe.daemon.cri.runtime import (
    ContainerInfo,
    ContainerNotFound,
    ContainerState,
    NotSupported,
    Runtime,
    RuntimeFailure,
)

log = structlog.get_logger(__name__)

LIST_INTERVAL_SECONDS: Final = 1.0
"""Between two lists while somebody is subscribed and no event stream is trusted."""

RECONCILE_INTERVAL_SECONDS: Final = 15.0
"""Between two lists otherwise."""

REFRESH_INTERVAL_SECONDS: Final = 0.2
"""Between two lists that somebody asked for; the first of them does not wait for the others' turn."""

MAX_BACKOFF_SECONDS: Final = 2.0
"""Between two attempts while the runtime is away: it is a socket on the same machine."""

STREAM_RETRY_SECONDS: Final = 600.0
"""Until a runtime without an event stream is asked again: it may have been upgraded."""


class ContainerView(msgspec.Struct, frozen=True):
    """The newest container of one name in one pod.

    `started_at`, `ips` and `host_network` are known of a container that runs; `ips` is empty for a pod in the
    host's network. One that runs and of which the runtime does not tell more is in the state UNKNOWN; `problem`
    says why, for people.
    """

    id: str
    state: ContainerState
    attempt: int
    created_at_ns: int
    started_at: datetime | None = None
    ips: tuple[str, ...] = ()
    host_network: bool = False
    problem: str = ""


Callback = Callable[[], None]


class ContainerWatcher:
    """Keeps the newest container of every subscribed (pod, name); `find` answers from memory.

    Subscribers are called, on the loop and without arguments, when the view of their container or
    `available` has changed. Cancelling `run` leaves the last views as they are.

    Attributes:
        available: the runtime answered when it was last asked for a list; before the first it did not.
        problem: why it is not available, for people; empty when it is.
        lists: how many lists were asked for so far.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.available = False
        self.problem = "the container runtime was not asked yet"
        self.lists = 0
        self._runtime = runtime
        self._subscribers: dict[ContainerKey, list[Callback]] = {}
        self._newest: dict[ContainerKey, ContainerInfo] = {}
        self._details = Answers(runtime.container_status, on_news=self._hear_of)
        self._sandboxes = Answers(runtime.sandbox_status, on_news=self._hear_of)
        self._views: dict[ContainerKey, ContainerView] = {}
        self._wake = asyncio.Event()
        self._wanted_age = RECONCILE_INTERVAL_SECONDS
        self._refresh_is_wanted = False
        self._refreshed_at = -math.inf
        self._told_of: set[str] = set()
        self._stream_is_trusted = False
        self._was_asked = False

    def find(self, pod_uid: str, container_name: str) -> ContainerView | None:
        """The newest container of this name; None when there is none, or it was not looked at yet."""
        return self._views.get(ContainerKey(pod_uid, container_name))

    def subscribe(self, pod_uid: str, container_name: str, callback: Callback) -> Callback:
        """Calls `callback` at every change of this container; returns what ends the subscription."""
        key = ContainerKey(pod_uid, container_name)
        self._subscribers.setdefault(key, []).append(callback)
        container = self._newest.get(key)
        if container is None:
            self.refresh_soon()
        elif self._is_unknown(container):
            self._wake.set()
        elif view := self._view(key):
            self._views[key] = view

        def unsubscribe() -> None:
            callbacks = self._subscribers.get(key, [])
            if callback in callbacks:
                callbacks.remove(callback)
            if not callbacks and self._subscribers.pop(key, None) is not None:
                self._views.pop(key, None)

        return unsubscribe

    def refresh_soon(self) -> None:
        """One more list, soon: somebody knows of a container that is not, or no longer, here."""
        self._refresh_is_wanted = True
        self._wake.set()

    async def run(self) -> None:
        """Watches until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            _ = group.create_task(self._keep_listing(group), name="containers: list")
            _ = group.create_task(self._follow_events(), name="containers: events")

    async def _keep_listing(self, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        backoff = REFRESH_INTERVAL_SECONDS
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
                backoff = REFRESH_INTERVAL_SECONDS
                self._publish(self._subscribers)
                self._set_available(True, "")
            self._look_closer(group)
            list_is_due = await self._wait_for_work(listed_at)

    def _want_list(self, age_seconds: float) -> None:
        """A list is due as soon as the last one is that old."""
        self._wanted_age = min(self._wanted_age, age_seconds)
        self._wake.set()

    def _interval(self) -> float:
        if self._subscribers and not self._stream_is_trusted:
            return min(self._wanted_age, LIST_INTERVAL_SECONDS)
        return self._wanted_age

    def _due_at(self, listed_at: float) -> float:
        due = listed_at + self._interval()
        if self._refresh_is_wanted:
            due = min(due, self._refreshed_at + REFRESH_INTERVAL_SECONDS)
        return due

    async def _wait_for_work(self, listed_at: float) -> bool:
        """True when the next list is due, False when a container is to be looked at closer."""
        loop = asyncio.get_running_loop()
        while not self._unasked():
            self._wake.clear()
            left = self._due_at(listed_at) - loop.time()
            if left <= 0:
                return True
            try:
                async with asyncio.timeout(left):
                    await self._wake.wait()
            except TimeoutError:
                return True
        return False

    async def _list(self) -> None:
        self._wanted_age = RECONCILE_INTERVAL_SECONDS
        if self._refresh_is_wanted:
            self._refresh_is_wanted = False
            self._refreshed_at = asyncio.get_running_loop().time()
        told_of, self._told_of = self._told_of, set()
        self.lists += 1
        containers = await self._runtime.list_containers()
        before, self._newest = self._newest, newest(containers)
        if self._stream_is_trusted and not told_of.issuperset(
            ids_changed(before.values(), self._newest.values())
        ):
            log.debug("the event stream missed a container; listing every second")
            self._stream_is_trusted = False
        self._details.keep({container.id for container in self._newest.values()})
        self._sandboxes.keep({container.sandbox_id for container in self._newest.values()})

    def _unasked(self) -> list[ContainerInfo]:
        """Subscribed containers that run, and of which something is to be asked."""
        return [
            container
            for key in self._subscribers
            if (container := self._newest.get(key)) is not None
            and container.state is ContainerState.RUNNING
            and (self._details.is_due(container.id) or self._sandboxes.is_due(container.sandbox_id))
        ]

    def _look_closer(self, group: asyncio.TaskGroup) -> None:
        for container in self._unasked():
            self._details.ask(container.id, group)
            self._sandboxes.ask(container.sandbox_id, group)

    def _hear_of(self, id: str) -> None:
        """An id of a container or sandbox has an answer or a failure, or may be asked for again."""
        if self._details.failure(id) or self._sandboxes.failure(id):
            # It may be gone, or the whole runtime: the next list tells.
            self._want_list(LIST_INTERVAL_SECONDS)
        self._publish(
            key
            for key in self._subscribers
            if (container := self._newest.get(key)) and id in (container.id, container.sandbox_id)
        )

    def _is_unknown(self, container: ContainerInfo) -> bool:
        return container.state is ContainerState.RUNNING and not (
            self._details.get(container.id) and self._sandboxes.get(container.sandbox_id)
        )

    def _failure(self, container: ContainerInfo) -> RuntimeFailure | None:
        return self._details.failure(container.id) or self._sandboxes.failure(container.sandbox_id)

    def _publish(self, keys: Iterable[ContainerKey]) -> None:
        changed: list[ContainerKey] = []
        for key in keys:
            container = self._newest.get(key)
            if container and self._is_unknown(container) and not self._failure(container):
                continue  # The view of before stands until there is an answer.
            view = self._view(key)
            if view == self._views.get(key):
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
        if self._is_unknown(container) and (failure := self._failure(container)):
            if isinstance(failure, ContainerNotFound):
                return None
            state, problem = ContainerState.UNKNOWN, str(failure)
        detail = self._details.get(container.id)
        sandbox = self._sandboxes.get(container.sandbox_id)
        return ContainerView(
            id=container.id,
            state=state,
            attempt=container.attempt,
            created_at_ns=container.created_at_ns,
            started_at=detail.started_at if detail else None,
            ips=sandbox.ips if sandbox else (),
            host_network=bool(sandbox and sandbox.host_network),
            problem=problem,
        )

    def _set_available(self, available: bool, problem: str) -> None:
        first, self._was_asked = not self._was_asked, True
        self.problem = problem
        if available == self.available and not first:
            return
        changed, self.available = available != self.available, available
        if not available:
            log.warning("the container runtime is away; waiting for it", error=problem)
        else:
            log.info("the container runtime answers")
        if not changed:
            return
        self._notify(list(self._subscribers))

    def _notify(self, keys: Iterable[ContainerKey]) -> None:
        for key in keys:
            for callback in tuple(self._subscribers.get(key, ())):
                callback()

    async def _follow_events(self) -> None:
        while True:
            pause = MAX_BACKOFF_SECONDS
            try:
                async for event in self._runtime.events():
                    self._told_of.add(event.container_id)
                    self._stream_is_trusted = True
                    self._want_list(LIST_INTERVAL_SECONDS)
            except NotSupported:
                pause = STREAM_RETRY_SECONDS
            except RuntimeFailure as failure:
                log.debug("the event stream broke", error=str(failure))
            self._stream_is_trusted = False
            self._wake.set()
            await asyncio.sleep(pause)
