"""A node for the daemon to run on: its containers, its probers and the API server, all scripted, on virtual time.

Known lies: containers change without delay; the API server keeps one NodePodProbe and one Lease, and its watch
delivers after `WATCH_SECONDS`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from itertools import pairwise
from typing import Any, NamedTuple, cast

import msgspec
from support.background import no_failed_callback
from support.fake_source import stamp
from support.wire import decoded

from kruise_probe.api.errors import Conflict, Forbidden, NoResponse, NotFound
from kruise_probe.api.meta import NamespacedName, ObjectMeta, OwnerReference, Resource
from kruise_probe.api.node_pod_probe import (
    ContainerProbeState,
    NodePodProbe,
    NodePodProbeSpec,
    NodePodProbeStatus,
    PodProbe,
)
from kruise_probe.api.probe import ExecAction, Probe
from kruise_probe.api.resources import LEASES, NODE_POD_PROBES
from kruise_probe.api.v1alpha1 import ContainerProbe
from kruise_probe.client.request import REQUEST_SECONDS, PatchType
from kruise_probe.daemon.cri.containers import MISSING, ContainerView, ContainerWatcher
from kruise_probe.daemon.cri.runtime import ContainerState
from kruise_probe.daemon.desired import NodeAddresses
from kruise_probe.daemon.places import EXECS, SOCKETS, Place, Places
from kruise_probe.daemon.probers.prober import (
    UNLIMITED,
    Prober,
    ProbeResult,
    Resources,
    Target,
    failure,
    success,
)
from kruise_probe.daemon.supervisor import run_supervisor
from kruise_probe.daemon.worker import WorkerContext
from kruise_probe.informers.replica import EventHandler
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.runtime.recorder import EventRecorder

NODE = "node-1"
EPOCH = datetime(2026, 11, 21, 12, 0, 0, 250_000, UTC)
WATCH_SECONDS = 0.005

OK = success("ok")
BAD = failure("bad")
HUNG = failure("timed out", timed_out=True)


def loop_time() -> float:
    return asyncio.get_running_loop().time()


def wall_clock() -> datetime:
    """The wall clock of virtual time."""
    return EPOCH + timedelta(seconds=loop_time())


def exec_probe(command: str = "check", **numbers: int) -> Probe:
    return msgspec.structs.replace(Probe(exec=ExecAction((command,))), **numbers)


def probe_of(probe: Probe, name: str = "marker#probe", container: str = "main") -> ContainerProbe:
    return ContainerProbe(name, container, probe)


def pod_of(*probes: ContainerProbe, name: str = "pod", ip: str = "127.0.0.9") -> PodProbe:
    """A pod whose uid is its name with `uid-` before it."""
    return PodProbe(
        name,
        "default",
        f"uid-{name}",
        ip,
        probes,
    )


def spec_of(*pods: PodProbe) -> NodePodProbeSpec:
    return NodePodProbeSpec(pods)


def one(probe: Probe) -> NodePodProbeSpec:
    """A spec of one pod with one probe."""
    return spec_of(pod_of(probe_of(probe)))


class FakeContainers(ContainerWatcher):
    """What a `ContainerWatcher` shows, set by hand."""

    def __init__(self) -> None:
        self.available = True
        self.problem = ""
        self.known = True
        self._shown: dict[tuple[str, str], ContainerView] = {}
        self._callbacks: list[Callable[[], None]] = []
        self.refreshes = 0
        self.starts: list[datetime] = []
        self._count = 0

    def set_available(self, available: bool) -> None:
        self.available = available
        self.problem = "" if available else "unavailable"
        self._changed()

    def show(self) -> None:
        """The runtime has returned what it was asked for."""
        self.known = True
        self._changed()

    def find(self, pod_uid: str, container_name: str) -> ContainerView | None:
        if not self.known:
            return None
        return self._shown.get((pod_uid, container_name), MISSING)

    def subscribe(
        self, pod_uid: str, container_name: str, callback: Callable[[], None]
    ) -> Callable[[], None]:
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    @property
    def subscriptions(self) -> int:
        return len(self._callbacks)

    def request_list(self) -> None:
        self.refreshes += 1

    def start(
        self,
        pod: str = "pod",
        container: str = "main",
        *,
        age: float = 0.0,
        id: str = "",
        ips: tuple[str, ...] = ("127.0.0.9",),
        host_network: bool = False,
    ) -> str:
        """A container that started `age` seconds ago replaces the one of this name; returns its id."""
        self._count += 1
        started_at = wall_clock() - timedelta(seconds=age)
        self.starts.append(started_at)
        view = ContainerView(
            id or f"container-{self._count}",
            ContainerState.RUNNING,
            started_at,
            ips=ips,
            host_network=host_network,
        )
        self._shown[f"uid-{pod}", container] = view
        self._changed()
        return view.id

    def stop(
        self,
        pod: str = "pod",
        *,
        state: ContainerState = ContainerState.EXITED,
        problem: str = "",
        exit_code: int | None = None,
    ) -> None:
        """The container `main` no longer runs, or its status call fails with this problem."""
        key = f"uid-{pod}", "main"
        self._shown[key] = msgspec.structs.replace(
            self._shown[key],
            state=state,
            problem=problem,
            exit_code=exit_code,
        )
        self._changed()

    def remove(self, pod: str = "pod", container: str = "main") -> None:
        del self._shown[f"uid-{pod}", container]
        self._changed()

    def _changed(self) -> None:
        for callback in tuple(self._callbacks):
            callback()

    async def run(self) -> None:
        await asyncio.Event().wait()


class Attempt(NamedTuple):
    """One run of a prober; `ended` is None while it runs and after it was cancelled."""

    probe: Probe
    target: Target
    began: float
    ended: float | None


Behaviour = Callable[[Probe, Target], Awaitable[ProbeResult]]


async def _always_ok(_: Probe, __: Target) -> ProbeResult:
    return OK


class FakeProbers:
    """A prober factory. Its probers run `behaviour` and record their attempts.

    Attributes:
        on_probe: called when an attempt starts.
    """

    def __init__(self) -> None:
        self.behaviour: Behaviour = _always_ok
        self.on_probe: Callable[[], object] | None = None
        self.attempts: list[Attempt] = []
        self.in_flight = 0
        self.most_in_flight = 0

    def answer(self, result: ProbeResult | Exception, *, seconds: float = 0.0) -> None:
        """From now on every probe gives `result`, after `seconds`."""

        async def behave(_: Probe, __: Target) -> ProbeResult:
            if seconds:
                await asyncio.sleep(seconds)
            if isinstance(result, Exception):
                raise result
            return result

        self.behaviour = behave

    def __call__(self, entry: ContainerProbe) -> "FakeProber":
        return FakeProber(entry.probe, self)

    @property
    def times(self) -> list[float]:
        """When the probes began."""
        return [attempt.began for attempt in self.attempts]


class FakeProber(Prober):
    def __init__(self, probe: Probe, probers: FakeProbers) -> None:
        self._probe = probe
        self._probers = probers

    async def run(self, target: Target, resources: Resources = UNLIMITED) -> ProbeResult:
        probers = self._probers
        if probers.on_probe:
            probers.on_probe()
        number = len(probers.attempts)
        attempt = Attempt(
            self._probe,
            target,
            loop_time(),
            None,
        )
        probers.attempts.append(attempt)
        probers.in_flight += 1
        probers.most_in_flight = max(probers.most_in_flight, probers.in_flight)
        try:
            result = await probers.behaviour(self._probe, target)
            probers.attempts[number] = attempt._replace(ended=loop_time())
        finally:
            probers.in_flight -= 1
        return result


class StatusWrite(NamedTuple):
    at: float
    status: NodePodProbeStatus


class FakeNodeApi:
    """One NodePodProbe and one Lease, as client and as informer.

    Attributes:
        prunes: True drops the fields that Kruise's CRD does not have.
        fail: called before each request with its kind; may raise, or wait.
        node: the owner of the object.
    """

    def __init__(self) -> None:
        self.object: NodePodProbe | None = None
        self.prunes = False
        self.conflicts = 0
        self.watch_seconds = WATCH_SECONDS
        self.node = OwnerReference("v1", "Node", NODE, "uid-node-1")
        self.fail: Callable[[str], Awaitable[None]] | None = None
        self.writes: list[StatusWrite] = []
        self.lease: dict[str, Any] | None = None
        self.lease_writes: list[float] = []
        self.refuses_owner = False
        self._lease_version = 1
        self._version = 100
        self._handlers: list[EventHandler[NodePodProbe]] = []
        self._synced = asyncio.Event()

    @property
    def status(self) -> NodePodProbeStatus:
        assert self.object
        return self.object.status or NodePodProbeStatus()

    def states(self) -> dict[str, ContainerProbeState]:
        """Published states, as `<pod>/<probe>`."""
        found = {}
        for pod in self.status.pod_probe_statuses or ():
            for state in pod.probe_states or ():
                found[f"{pod.name}/{state.name}"] = state
        return found

    def state(self, name: str = "pod/marker#probe") -> str | None:
        found = self.states().get(name)
        return str(found.state) if found else None

    def message(self, name: str = "pod/marker#probe") -> str:
        return self.states()[name].message or ""

    def transitions(self) -> list[str]:
        """The published states of the only probe, each change once."""
        seen: list[str] = []
        for write in self.writes:
            (pod,) = write.status.pod_probe_statuses or ()
            (state,) = pod.probe_states or ()
            if seen[-1:] != [state.state]:
                seen.append(str(state.state))
        return seen

    # The manager's half.

    def put(self, spec: NodePodProbeSpec, status: NodePodProbeStatus | None = None) -> None:
        """Write the spec, and the status if it is given. The owner of the object is its Node, as the manager sets it."""
        uid = f"uid-{self._version}"
        if self.object:
            uid = self.object.uid
            status = status or self.object.status
        metadata = ObjectMeta(NODE, uid=uid, owner_references=(self.node,))
        self._store(NodePodProbe(metadata, spec, status))

    def remove(self) -> None:
        before = self.object
        assert before
        self.object = None
        for handler in self._handlers:
            handler.on_delete(before)

    def restore(self, backup: NodePodProbe) -> None:
        """Restore the server from a backup: the object and the counter of versions are those of `backup`."""
        before = self.object
        self.object = backup
        self._version = int(backup.resource_version)
        self._notify(before, backup)

    def _store(self, changed: NodePodProbe, *, watched_after: float = 0.0) -> NodePodProbe:
        self._version += 1
        before = self.object
        now: NodePodProbe = stamp(changed, str(self._version))
        self.object = now
        if watched_after:
            asyncio.get_running_loop().call_later(
                watched_after,
                self._notify,
                before,
                now,
            )
        else:
            self._notify(before, now)
        return now

    def _notify(self, before: NodePodProbe | None, now: NodePodProbe) -> None:
        for handler in self._handlers:
            if before is None:
                handler.on_add(now, False)
            else:
                handler.on_update(before, now)

    # The informer.

    def add_event_handler(self, handler: EventHandler[NodePodProbe]) -> None:
        self._handlers.append(handler)

    def forget_handlers(self) -> None:
        self._handlers.clear()
        self._synced.clear()

    async def wait_for_sync(self) -> None:
        await self._synced.wait()

    async def run(self) -> None:
        if self.object:
            for handler in self._handlers:
                handler.on_add(self.object, True)
        self._synced.set()
        await asyncio.Event().wait()

    # The client.

    async def replace_for_metadata(
        self,
        resource: Resource[Any],
        key: NamespacedName,
        body: bytes,
        *,
        subresource: str = "",
        deadline_seconds: float = REQUEST_SECONDS,
    ) -> ObjectMeta:
        try:
            async with asyncio.timeout(deadline_seconds):
                await self._may_fail(resource.kind)
        except TimeoutError as error:
            raise NoResponse("no response") from error
        assert (resource, key.name, subresource) == (NODE_POD_PROBES, NODE, "status")
        if self.object is None:
            raise NotFound("no such object")
        update = json.loads(body)
        metadata = update.pop("metadata")
        assert update.pop("apiVersion") == NODE_POD_PROBES.api_version
        assert update.pop("kind") == NODE_POD_PROBES.kind
        assert set(metadata) == {"name", "resourceVersion"}
        if metadata["resourceVersion"] != self.object.resource_version:
            self.conflicts += 1
            raise Conflict("the object has been modified")
        return self._write_status(update).metadata

    async def _may_fail(self, request: str) -> None:
        if self.fail:
            await self.fail(request)

    async def patch(
        self,
        resource: Any,
        key: NamespacedName,
        body: bytes,
        *,
        patch_type: PatchType,
        subresource: str = "",
    ) -> Any:
        assert patch_type is PatchType.MERGE
        await self._may_fail(resource.kind)
        if resource is LEASES:
            return self._patch_lease(body)
        assert (resource, key.name, subresource) == (NODE_POD_PROBES, NODE, "status")
        if self.object is None:
            raise NotFound("no such object")
        return self._write_status(json.loads(body))

    def _write_status(self, body: dict[str, Any]) -> NodePodProbe:
        assert self.object
        assert set(body) == {"status"}, "the daemon writes nothing but the status"
        if self.prunes:
            _prune(body["status"])
        status = msgspec.convert(body["status"], NodePodProbeStatus)
        self.writes.append(StatusWrite(loop_time(), status))
        changed = msgspec.structs.replace(self.object, status=status)
        return self._store(changed, watched_after=self.watch_seconds)

    def _patch_lease(self, body: bytes) -> Any:
        if self.lease is None:
            raise NotFound("no such lease")
        patch = json.loads(body)
        assert set(patch) <= {"spec", "metadata"}
        metadata = patch.get("metadata", {})
        if self.refuses_owner and "ownerReferences" in metadata:
            raise Forbidden("cannot set an ownerRef on a resource you can't delete")
        version = str(self._lease_version)
        if metadata.pop("resourceVersion", version) != version:
            raise Conflict("the object has been modified")
        if patch:
            self.lease["spec"].update(patch["spec"])
            self.lease["metadata"].update(metadata)
            self.lease_writes.append(loop_time())
            self._lease_version += 1
        return self._decoded_lease()

    def renew_as(self, holder: str) -> None:
        """Another process renews the Lease."""
        assert self.lease
        self.lease["spec"]["holderIdentity"] = holder
        self._lease_version += 1

    def _decoded_lease(self) -> Any:
        assert self.lease
        metadata = self.lease["metadata"] | {"resourceVersion": str(self._lease_version)}
        return decoded(LEASES, self.lease | {"metadata": metadata})

    async def create(self, resource: Resource[Any], body: bytes, *, namespace: str = "") -> Any:
        assert resource is LEASES
        await self._may_fail("create " + resource.kind)
        lease = json.loads(body)
        assert lease["metadata"]["namespace"] == namespace
        self.lease = lease
        self.lease_writes.append(loop_time())
        return self._decoded_lease()


def _prune(status: dict[str, Any]) -> None:
    for pod in status["podProbeStatuses"]:
        for state in pod["probeStates"]:
            state.pop("probeHash", None)


class FakeRecorder(EventRecorder):
    """Keeps the arguments of each event, those by name last."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def event(self, *what: Any, **more: Any) -> None:
        self.events.append((*what, more))

    async def flush(self) -> None: ...

    async def run(self) -> None:
        await asyncio.Event().wait()


class ScriptedNode:
    """A node. Its containers, probers and API server stay when a daemon is replaced."""

    def __init__(self) -> None:
        self.containers = FakeContainers()
        self.probers = FakeProbers()
        self.prober_factory: Callable[[ContainerProbe], Prober] = self.probers
        self.api = FakeNodeApi()
        self.execs = Places(1000, EXECS)
        self.sockets = Places(1000, SOCKETS)
        self.occupied: list[Place] = []
        self.recorder = FakeRecorder()
        self.stall_ended_at = float("-inf")
        self.suspended_seconds = 0.0
        """How far the wall clock is ahead of virtual time."""

    def stop(self) -> None:
        self.containers.stop()

    def remove(self) -> None:
        self.containers.remove()

    def lose_runtime(self) -> None:
        self.containers.set_available(False)

    def now(self) -> datetime:
        return wall_clock() + timedelta(seconds=self.suspended_seconds)

    async def _run(self) -> None:
        client: Any = self.api
        await run_supervisor(
            node_name=NODE,
            informer=cast(SharedInformer[NodePodProbe], self.api),
            client=client,
            context=WorkerContext(
                containers=self.containers,
                node_addresses=NodeAddresses(lambda: frozenset({ip_address("10.0.0.1")})),
                prober_factory=self.prober_factory,
                execs=self.execs,
                sockets=self.sockets,
                stalled_since=lambda at: self.stall_ended_at >= at,
                now=self.now,
            ),
            recorder=self.recorder,
        )

    @asynccontextmanager
    async def daemon(self, seconds: float = 0.0) -> AsyncIterator[None]:
        """Run a daemon for `seconds`, then within the block; end it as SIGTERM does."""
        with no_failed_callback():
            task = asyncio.create_task(self._run())
            try:
                await asyncio.sleep(0.001 + seconds)  # what is ready runs
                yield
            finally:
                task.cancel()
                await asyncio.wait([task])
                self.api.forget_handlers()
                if not task.cancelled():
                    task.result()

    async def killed_daemon(self, seconds: float) -> None:
        """Run a daemon for `seconds`, then kill it: what it writes while it ends is undone."""
        async with self.daemon():
            await asyncio.sleep(seconds)
            kept = self.api.object
            writes = len(self.api.writes)
        self.api.object = kept
        del self.api.writes[writes:]


def gaps(times: Sequence[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]
