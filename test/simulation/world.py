"""The world of a simulation: one cluster with two nodes, and the processes of the product.

`edits` and `faults` change it. It records every event and every change of an object.
"""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from functools import cache, partial
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from simulation.loop import SimulatedLoop
from simulation.network import Sent
from simulation.processes import (
    SimulatedDaemon,
    SimulatedManager,
    SimulatedProcess,
    Surroundings,
)
from simulation.servers import ApiServers
from support.fake_runtime import EPOCH, ExecCall, FakeContainer, ScriptedRuntime
from support.wire import Json

from kruise_probe.api.meta import Resource
from kruise_probe.api.names import (
    SYSTEM_NAMESPACE,
)
from kruise_probe.api.resources import LEASES, MARKERS, NODE_POD_PROBES, NODES, PODS
from kruise_probe.client.request import JSON, PatchType, Request
from kruise_probe.daemon.cri.runtime import ExecResult
from kruise_probe.manifests.crds import all_crds
from kruise_probe_playground.apiserver.builtin import builtin_kinds
from kruise_probe_playground.apiserver.custom import custom_kind
from kruise_probe_playground.apiserver.deleting import GarbageCollector
from kruise_probe_playground.apiserver.failures import Cause
from kruise_probe_playground.apiserver.kinds import Kind
from kruise_probe_playground.apiserver.registry import Registry
from kruise_probe_playground.apiserver.store import Stored
from kruise_probe_playground.marker_rules import marker_problems

if TYPE_CHECKING:
    from simulation.applications import Applications

NODE_NAMES = ("node-1", "node-2")
POD_NAMES = ("web-0", "web-1", "web-2", "web-3")
MARKER_NAMES = ("way", "gateway", "a")
MANAGERS = ("manager-1", "manager-2")
DAEMONS = tuple(f"daemon-{node}" for node in NODE_NAMES)
PROCESSES = (*MANAGERS, *DAEMONS)
APPS = ("web", "db")
NAMESPACE = "default"


class SimulationEvent(NamedTuple):
    """One event: virtual seconds, process and text."""

    at: float
    process: str
    event: str

    def __str__(self) -> str:
        return f"{self.at:10.3f} {self.process:14} {self.event}"


class LeaseGaps:
    """The longest time without a renewal of each Lease since `begin`."""

    def __init__(self) -> None:
        self._renewed: dict[str, float] = {}
        self.longest_seconds: dict[str, float] = {}

    def begin(self) -> None:
        self.longest_seconds.clear()

    def note(self, lease: str, at: float) -> None:
        gap = at - self._renewed.get(lease, at)
        self.longest_seconds[lease] = max(self.longest_seconds.get(lease, 0.0), gap)
        self._renewed[lease] = at


class _Fault(NamedTuple):
    """A fault that ends by `undo` at loop time `ends_at`."""

    ends_at: float
    undo: Callable[[], object]


class Commit(NamedTuple):
    """One change of the store. `old` is None for a creation, `new` for a removal."""

    at: float
    writer: str
    resource: str
    name: str
    old: Json | None
    new: Json | None

    def __str__(self) -> str:
        return f"{self.at:.3f} {self.writer} writes {self.resource} {self.name}"


@cache
def _kinds() -> tuple[Kind, ...]:
    """As on Kruise's CRD without a webhook, a selector may be edited."""

    def problems(new: Json, old: Json | None) -> list[Cause]:
        if old and old["spec"] == new["spec"]:
            return []
        return list(marker_problems(new, None))

    validators = {"podprobemarkers.apps.kruise.io": problems}
    crds = [custom_kind(crd, validators.get(crd["metadata"]["name"])) for crd in all_crds()]
    return (*builtin_kinds(), *crds)


class ObservedRegistry(Registry):
    """Calls `observe` after every change."""

    observe: Callable[[Kind, Stored | None, Stored | None], None] = staticmethod(
        lambda kind, old, new: None
    )

    def commit(self, kind: Kind, new: Json, old: Stored | None) -> Stored:
        stored = super().commit(kind, new, old)
        self.observe(kind, old, stored)
        return stored

    def remove(self, kind: Kind, last: Json, old: Stored) -> Stored:
        stored = super().remove(kind, last, old)
        self.observe(kind, old, None)
        return stored


class World:
    """One cluster. Create it within a running `SimulatedLoop`, and use it as an async context manager.

    Attributes:
        log: every event, in order.
        commits: every change of an object of the product, in order.
        outcomes: exit code and output of a command, by pod and command; absent ones succeed.
        containers: the newest container of each pod.
        applications: what runs in the containers, if the truth is observed; otherwise `outcomes` decides.
        on_send, on_commit: called with each request at its sending, and with each change.
    """

    def __init__(self, seed: int, *, managers: int = 2) -> None:
        self.random = Random(seed)
        self.log: list[SimulationEvent] = []
        self.commits: list[Commit] = []
        self.outcomes: dict[tuple[str, str], tuple[int, str]] = {}
        self.on_send: Callable[[Sent], None] = lambda sent: None
        self.on_commit: Callable[[Commit], None] = lambda commit: None
        self.lease_gaps = LeaseGaps()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        self.loop = loop
        loop.note = self.note
        self.moved_clock: datetime | None = None
        self.registry = ObservedRegistry(
            _kinds(),
            now=lambda: self.moved_clock or self.clock(),
            random=Random(self.random.random()),
        )
        self.servers = ApiServers(self.registry)
        self._kinds = {
            resource: self.registry.kinds[f"{resource.plural}.{resource.group}".rstrip(".")]
            for resource in (PODS, NODES, MARKERS, NODE_POD_PROBES, LEASES)
        }
        around = Surroundings(
            self.servers,
            self.random,
            self.clock,
            self.note,
            lambda sent: self.on_send(sent),
        )
        self.runtimes = {node: ScriptedRuntime() for node in NODE_NAMES}
        self.managers = [SimulatedManager(name, around) for name in MANAGERS[:managers]]
        self.daemons = [
            SimulatedDaemon(
                f"daemon-{node}",
                node,
                runtime,
                around,
            )
            for node, runtime in self.runtimes.items()
        ]
        processes: list[SimulatedProcess] = [*self.managers, *self.daemons]
        self.processes = {process.name: process for process in processes}
        self.containers: dict[str, FakeContainer] = {}
        self.applications: Applications | None = None
        self._later: set[asyncio.Task[None]] = set()
        self._faults: dict[str, _Fault] = {}
        for runtime in self.runtimes.values():
            runtime.default_script = partial(self._run_command, runtime)
        self.registry.observe = self._observe

    # Clocks and the log.

    def clock(self) -> datetime:
        return EPOCH + timedelta(seconds=self.loop.time())

    def note(self, process: str, event: str) -> None:
        self.log.append(SimulationEvent(self.loop.time(), process, event))

    def _observe(self, kind: Kind, old: Stored | None, new: Stored | None) -> None:
        if kind not in self._kinds.values():
            return
        stored = new or old
        assert stored
        name = stored.key.name
        writer = self.servers.caller
        commit = Commit(
            self.loop.time(),
            writer,
            kind.plural,
            name,
            old=kind.decode(old) if old else None,
            new=kind.decode(new) if new else None,
        )
        if kind.plural == "leases":
            self.lease_gaps.note(name, commit.at)
        else:
            verb = "change"
            if not old:
                verb = "create"
            elif not new:
                verb = "delete"
            self.note(writer, f"{verb} {kind.plural} {name} {stored.revision}")
            self.commits.append(commit)
        self.on_commit(commit)

    # Life.

    async def __aenter__(self) -> "World":
        self._spawn(GarbageCollector(self.registry).run())
        for name in (NAMESPACE, SYSTEM_NAMESPACE):
            self.post("/api/v1/namespaces", {"metadata": {"name": name}})
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
        for task in self._later:
            task.cancel()

    def start(self) -> None:
        for process in self.processes.values():
            process.start()

    def works(self, process: str) -> bool:
        """Whether a process runs and is not paused."""
        return self.processes[process].running and not self.loop.is_paused(process)

    # Requests of users and kubelets.

    def request(
        self, method: str, target: str, body: Json | None = None, content_type: str = JSON
    ) -> Json | None:
        """The answer to a request; None for a refusal."""
        request = Request(method, target)
        if body:
            request = Request(
                method,
                target,
                msgspec.json.encode(body),
                content_type,
            )
        answer = self.servers.respond(request, "world")
        if answer.status >= 400:
            self.note("world", f"refused: {method} {target}: {answer.body.decode()[:200]}")
            return None
        decoded: Json = msgspec.json.decode(answer.body)
        return decoded

    def post(self, target: str, body: Json) -> Json | None:
        return self.request("POST", target, body)

    def merge(self, resource: Resource[Any], name: str, change: Json) -> None:
        self.request(
            "PATCH",
            resource.path(NAMESPACE, name),
            change,
            PatchType.MERGE,
        )

    def merge_status(self, pod: str, status: Json) -> None:
        path = PODS.path(NAMESPACE, pod, "status")
        self.request(
            "PATCH",
            path,
            {"status": status},
            PatchType.MERGE,
        )

    def objects(self, resource: Resource[Any]) -> dict[str, Json]:
        """All objects of a kind, by name."""
        kind = self._kinds[resource]
        objects = self.registry.collection(kind).ordered()
        return {stored.key.name: kind.decode(stored) for stored in objects}

    def get(self, resource: Resource[Any], name: str) -> Json | None:
        return self.objects(resource).get(name)

    # Faults.

    def begin_fault(self, name: str, seconds: float, undo: Callable[[], object]) -> None:
        """End the fault by `undo`, after `seconds` or at `heal`. Faults of one name that overlap end with the last."""
        ends_at = self.loop.time() + seconds
        before = self._faults.get(name)
        if before:
            ends_at = max(ends_at, before.ends_at)
        self._faults[name] = _Fault(ends_at, undo)

        def end() -> None:
            fault = self._faults.get(name)
            if fault and fault.ends_at <= self.loop.time():
                del self._faults[name]
                fault.undo()

        self.after(seconds, f"end of {name}", end)

    def after(self, seconds: float, what: str, call: Callable[[], object]) -> None:
        """Call `call` after `seconds`, and log it as `what`."""

        async def later() -> None:
            await asyncio.sleep(seconds)
            self.note("world", what)
            call()

        self._spawn(later())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    def heal(self) -> None:
        """End all faults."""
        for fault in self._faults.values():
            fault.undo()
        self._faults.clear()
        self.start()

    # Commands of probes.

    async def _run_command(self, runtime: ScriptedRuntime, call: ExecCall) -> ExecResult:
        container = runtime.containers[call.container_id]
        pod = next((name for name, other in self.containers.items() if other is container), "")
        code, output = self.outcomes.get((pod, call.command[0]), (0, "fine"))
        return ExecResult(code, output.encode(), b"")
