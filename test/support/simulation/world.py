"""The world of a simulation: one cluster with two nodes, its users and kubelets, and the processes of the product.

Every public method named by a `Step` of a plan is an edit by a user, or a fault. Edits and faults take plain values, so a
plan can be printed, shortened and run again.
"""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from functools import cache, partial
from random import Random
from typing import Any, NamedTuple

import msgspec
from support import strategies
from support.builders import Json, marker_wire, pod_wire, probe_wire
from support.fake_runtime import EPOCH, ExecCall, FakeContainer, ScriptedRuntime
from support.simulation.loop import SimulatedLoop
from support.simulation.network import QUIET, ApiServers, Chances, Sent
from support.simulation.processes import DaemonProcess, ManagerProcess, Process, Surroundings

from kruise_probe.api.kinds import Resource
from kruise_probe.api.names import (
    MANAGER_FIELD_MANAGER,
    PAUSED_ANNOTATION,
    SYSTEM_NAMESPACE,
    agent_lease_name,
)
from kruise_probe.api.resources import LEASES, MARKERS, NODE_POD_PROBES, NODES, PODS
from kruise_probe.api.times import format_time
from kruise_probe.client.request import JSON, PatchType, Request
from kruise_probe.daemon.cri.runtime import ContainerState, ExecResult, RuntimeUnavailable
from kruise_probe.manifests.crds import all_crds
from kruise_probe_playground.apiserver.builtin import builtin_kinds
from kruise_probe_playground.apiserver.custom import custom_kind
from kruise_probe_playground.apiserver.failures import Cause
from kruise_probe_playground.apiserver.garbage import GarbageCollector
from kruise_probe_playground.apiserver.kinds import Kind
from kruise_probe_playground.apiserver.registry import Registry
from kruise_probe_playground.apiserver.store import Stored
from kruise_probe_playground.marker_rules import marker_problems

NODE_NAMES = ("node-1", "node-2")
POD_NAMES = ("web-0", "web-1", "web-2", "web-3")
MARKER_NAMES = ("way", "gateway", "a")
PROBE_NAMES = ("p", "pp", "way")
MANAGERS = ("manager-1", "manager-2")
DAEMONS = tuple(f"daemon-{each}" for each in NODE_NAMES)
PROCESSES = (*MANAGERS, *DAEMONS)
APPS = ("web", "db")
NAMESPACE = "default"


class LogLine(NamedTuple):
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


class Commit(NamedTuple):
    """One change of the store. `old` is None for a creation, `new` for a removal."""

    at: float
    writer: str
    resource: str
    name: str
    old: Json | None
    new: Json | None


@cache
def _kinds() -> tuple[Kind, ...]:
    """As on Kruise's CRD without a webhook, a selector may be edited."""

    def problems(new: Json, old: Json | None) -> list[Cause]:
        return list(marker_problems(new, None)) if old is None or old["spec"] != new["spec"] else []

    validators = {"podprobemarkers.apps.kruise.io": problems}
    crds = [custom_kind(each, validators.get(each["metadata"]["name"])) for each in all_crds()]
    return (*builtin_kinds(), *crds)


class ObservedRegistry(Registry):
    """Calls `observe` after every change."""

    observe: Callable[[Kind, Stored | None, Stored | None], None] = staticmethod(
        lambda kind, old, new: None
    )

    def commit(self, kind: Kind, new: Json, old: Stored | None, *, dry_run: bool = False) -> Stored:
        stored = super().commit(kind, new, old, dry_run=dry_run)
        if not dry_run:
            self.observe(kind, old, stored)
        return stored

    def remove(self, kind: Kind, last: Json, old: Stored, *, dry_run: bool = False) -> Stored:
        stored = super().remove(kind, last, old, dry_run=dry_run)
        if not dry_run:
            self.observe(kind, old, None)
        return stored


class World:
    """One cluster. Create it within a running `SimulatedLoop`, and use it as an async context manager.

    Attributes:
        log: every event, in order.
        commits: every change of an object of the product, in order.
        outcomes: exit code and output of a command, by pod and command; absent ones succeed.
        on_send, on_commit: called with each request at its sending, and with each change.
    """

    def __init__(self, seed: int, *, managers: int = 2) -> None:
        self.random = Random(seed)
        self.log: list[LogLine] = []
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
            _kinds(), now=self._server_clock, random=Random(self.random.random())
        )
        self.servers = ApiServers(self.registry)
        self._objects = {
            each: self.registry.kinds[f"{each.plural}.{each.group}".rstrip(".")]
            for each in (PODS, NODES, MARKERS, NODE_POD_PROBES, LEASES)
        }
        self._watched = {each.resource for each in self._objects.values()}
        around = Surroundings(
            self.servers,
            self.random,
            clock=self.clock,
            log=self.note,
            on_send=lambda sent: self.on_send(sent),
        )
        self.runtimes = {each: ScriptedRuntime(has_events=True) for each in NODE_NAMES}
        self.managers = [ManagerProcess(each, around) for each in MANAGERS[:managers]]
        self.daemons = [
            DaemonProcess(f"daemon-{node}", node, runtime, around)
            for node, runtime in self.runtimes.items()
        ]
        self.processes: dict[str, Process] = {
            each.name: each for each in (*self.managers, *self.daemons)
        }
        self._containers: dict[str, FakeContainer] = {}
        self._later: set[asyncio.Task[None]] = set()
        self._undo: dict[str, Callable[[], None]] = {}
        self._collector: asyncio.Task[None] | None = None
        for runtime in self.runtimes.values():
            runtime.default_script = partial(self._run_command, runtime)
        self.registry.observe = self._observe

    # Clocks and the log.

    def clock(self) -> datetime:
        return EPOCH + timedelta(seconds=self.loop.time())

    def _server_clock(self) -> datetime:
        return self.moved_clock or self.clock()

    def note(self, process: str, event: str) -> None:
        self.log.append(LogLine(self.loop.time(), process, event))

    def _observe(self, kind: Kind, old: Stored | None, new: Stored | None) -> None:
        if kind.resource not in self._watched:
            return
        stored = new or old
        assert stored is not None
        verb = "delete" if new is None else "create" if old is None else "change"
        writer = self.servers.caller
        commit = Commit(
            self.loop.time(),
            writer,
            kind.plural,
            stored.key.name,
            kind.decode(old) if old is not None else None,
            kind.decode(new) if new is not None else None,
        )
        if kind.plural == "leases":
            self.lease_gaps.note(stored.key.name, commit.at)
        else:
            self.note(writer, f"{verb} {kind.plural} {stored.key.name} {stored.revision}")
            self.commits.append(commit)
        self.on_commit(commit)

    # Life.

    async def __aenter__(self) -> "World":
        self._collector = asyncio.create_task(GarbageCollector(self.registry).run())
        for name in (NAMESPACE, SYSTEM_NAMESPACE):
            self._post("/api/v1/namespaces", {"metadata": {"name": name}})
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self.processes.values():
            each.kill()
        for task in (*self._later, self._collector):
            if task is not None:
                task.cancel()

    def populate(self) -> None:
        for name in NODE_NAMES:
            self._post("/api/v1/nodes", {"metadata": {"name": name}})
        for number, name in enumerate(POD_NAMES):
            self.create_pod(name, NODE_NAMES[number % 2])

    def start(self) -> None:
        for each in self.processes.values():
            each.start()

    # Requests of users and kubelets.

    def request(
        self, method: str, target: str, body: Json | None = None, content_type: str = JSON
    ) -> Json | None:
        """The answer to a request; None for a refusal."""
        data = None if body is None else msgspec.json.encode(body)
        request = Request(method, target, target, data, content_type if body is not None else "")
        answer = self.servers.respond(request, "world")
        if answer.status >= 400:
            self.note("world", f"refused: {method} {target}: {answer.body.decode()[:200]}")
            return None
        decoded: Json = msgspec.json.decode(answer.body)
        return decoded

    def _post(self, target: str, body: Json) -> Json | None:
        return self.request("POST", target, body)

    def merge(
        self, resource: Resource[Any], name: str, change: Json, *, subresource: str = ""
    ) -> Json | None:
        namespace = "" if resource in (NODES, NODE_POD_PROBES) else NAMESPACE
        path = resource.path(namespace, name, subresource)
        return self.request("PATCH", path, change, PatchType.MERGE)

    def objects(self, resource: Resource[Any]) -> dict[str, Json]:
        """All objects of a kind, by name."""
        kind = self._objects[resource]
        return {
            each.key.name: kind.decode(each) for each in self.registry.collection(kind).ordered()
        }

    def get(self, resource: Resource[Any], name: str) -> Json | None:
        return self.objects(resource).get(name)

    # Edits.

    def create_pod(self, name: str, node: str, app: str = "web", ip: str = "") -> None:
        ip = ip or f"127.1.0.{POD_NAMES.index(name) + 1}"
        wire = pod_wire(name, node=node, labels={"app": app}, ip=ip)
        wire["metadata"] = {"name": name, "labels": {"app": app}}
        wire["spec"]["containers"] = [{"name": "main", "image": "none"}]
        created = self._post(f"/api/v1/namespaces/{NAMESPACE}/pods", wire)
        if created is None:
            return
        self.merge(PODS, name, {"status": wire["status"]}, subresource="status")
        self._start_container(name, node, created["metadata"]["uid"], attempt=0)

    def _start_container(self, name: str, node: str, uid: str, *, attempt: int) -> None:
        runtime = self.runtimes[node]
        ip = f"127.1.0.{POD_NAMES.index(name) + 1}"
        container = runtime.start(uid, attempt=attempt, ip=ip, silently=True)
        container.created_at = container.started_at = self.clock()
        self._containers[name] = container
        runtime.tell(container.id)

    def _node_of(self, pod: str) -> str:
        found = self.get(PODS, pod)
        return found["spec"]["nodeName"] if found else NODE_NAMES[0]

    def delete_pod(self, name: str) -> None:
        node = self._node_of(name)
        if self._delete(PODS, name) is not None:
            container = self._containers.pop(name)
            self.runtimes[node].stop(container)
            self.runtimes[node].remove(container)

    def terminate_pod(self, name: str, seconds: float) -> None:
        """Delete a pod whose containers take so long to end."""
        uid = self._uid(name)
        if uid:
            self.request("DELETE", PODS.path(NAMESPACE, name))
            self.after(seconds, f"end of {name}", lambda: self._remove_terminated(name, uid))

    def _uid(self, pod: str) -> str:
        found = self.get(PODS, pod)
        return str(found["metadata"]["uid"]) if found else ""

    def _remove_terminated(self, name: str, uid: str) -> None:
        if self._uid(name) == uid:
            self.delete_pod(name)

    def gate_pod(self, name: str, seconds: float) -> None:
        """The kubelet reports that the pod is not initialized, for so long."""
        self._initialized(name, "False")
        self.after(seconds, f"{name} is initialized", lambda: self._initialized(name, "True"))

    def _initialized(self, name: str, status: str) -> None:
        if self._uid(name):
            condition = {"type": "Initialized", "status": status}
            self.request(
                "PATCH",
                PODS.path(NAMESPACE, name, "status"),
                {"status": {"conditions": [condition]}},
                PatchType.STRATEGIC_MERGE,
            )

    def move_ip(self, name: str, ip: str) -> None:
        if self._uid(name):
            self.merge(PODS, name, {"status": {"podIP": ip}}, subresource="status")

    def meddle(self, name: str, part: str, key: str, value: str | None) -> None:
        """Overwrite or remove a mark, in the name of our manager."""
        if self._uid(name):
            path = PODS.path(NAMESPACE, name, "status") + f"?fieldManager={MANAGER_FIELD_MANAGER}"
            self.request("PATCH", path, {"metadata": {part: {key: value}}}, PatchType.MERGE)

    def replace_pod(self, name: str, node: str) -> None:
        app = (self.get(PODS, name) or {"metadata": {"labels": {"app": "web"}}})["metadata"][
            "labels"
        ]["app"]
        self.delete_pod(name)
        self.create_pod(name, node, app)

    def restart_container(self, name: str, away_seconds: float) -> None:
        container = self._containers.get(name)
        if container is None:
            return
        self.runtimes[self._node_of(name)].stop(container, exit_code=1)
        self.after(away_seconds, f"start {name}", lambda: self._start_again(name, container))

    def _start_again(self, name: str, container: FakeContainer) -> None:
        if self._containers.get(name) is container and container.state is ContainerState.EXITED:
            node, attempt = self._node_of(name), container.attempt + 1
            self._start_container(name, node, container.pod_uid, attempt=attempt)

    def label(self, name: str, app: str) -> None:
        self.merge(PODS, name, {"metadata": {"labels": {"app": app}}})

    def put_marker(self, name: str, variant: int) -> None:
        """Create or edit a marker. `variant` makes its probes and its selector."""
        random = Random(variant)
        spec = marker_spec(name, random)
        if self.get(MARKERS, name) is None:
            body = marker_wire(name)
            body["metadata"] = {"name": name}
            body["spec"] = spec
            self._post(MARKERS.path(NAMESPACE), body)
        else:
            self.merge(MARKERS, name, {"spec": spec})

    def drop_marker(self, name: str) -> None:
        self._delete(MARKERS, name)

    def set_outcome(self, pod: str, command: str, code: int, output: str) -> None:
        self.outcomes[pod, command] = (code, output)

    def pause(self, kind: str, name: str, value: str | None) -> None:
        resource: Resource[Any] = PODS if kind == "pod" else MARKERS
        if self.get(resource, name) is not None:
            self.merge(resource, name, {"metadata": {"annotations": {PAUSED_ANNOTATION: value}}})

    def break_plan(self, node: str) -> None:
        if self.get(NODE_POD_PROBES, node) is not None:
            self.merge(NODE_POD_PROBES, node, {"spec": {"podProbes": None}})

    def delete_plan(self, node: str) -> None:
        self._delete(NODE_POD_PROBES, node)

    def recreate_node(self, node: str, away_seconds: float) -> None:
        """Delete a Node, and register it again as a new object."""
        if self._delete(NODES, node) is not None:
            self.after(away_seconds, f"register {node}", lambda: self._register(node))

    def _register(self, node: str) -> None:
        if self.get(NODES, node) is None:
            self._post("/api/v1/nodes", {"metadata": {"name": node}})

    def delete_lease(self, node: str) -> None:
        path = LEASES.path(SYSTEM_NAMESPACE, agent_lease_name(node))
        self.request("DELETE", path)

    def age_lease(self, node: str) -> None:
        """Set the renewal of a daemon's Lease two minutes back."""
        stamp = format_time(self.clock() - timedelta(seconds=120)).replace("Z", ".000000Z")
        path = LEASES.path(SYSTEM_NAMESPACE, agent_lease_name(node))
        self.request("PATCH", path, {"spec": {"renewTime": stamp}}, PatchType.MERGE)

    def _delete(self, resource: Resource[Any], name: str) -> Json | None:
        if self.get(resource, name) is None:
            return None
        namespace = "" if resource in (NODES, NODE_POD_PROBES) else NAMESPACE
        grace = "?gracePeriodSeconds=0" if resource is PODS else ""
        return self.request("DELETE", resource.path(namespace, name) + grace)

    # Faults. Each one ends by itself.

    def kill(self, process: str, away_seconds: float) -> None:
        self.processes[process].kill()
        self.after(away_seconds, f"start {process}", self.processes[process].start)

    def terminate(self, process: str, away_seconds: float) -> None:
        self.processes[process].terminate()
        self.after(away_seconds, f"start {process}", self.processes[process].start)

    def stop(self, process: str, seconds: float) -> None:
        """SIGSTOP, and SIGCONT."""
        self.loop.pause(process)
        self._until(f"stop {process}", seconds, lambda: self.loop.resume(process))

    def sever(self, process: str, seconds: float, watches_only: bool) -> None:
        link = self.processes[process].link
        if link is not None and not link.dead:
            link.sever(watches_only=watches_only)
            self._until(f"sever {process}", seconds, link.heal)

    def cut_streams(self, process: str) -> None:
        link = self.processes[process].link
        if link is not None:
            link.cut_streams()

    def disturb(self, process: str, seconds: float, chances: tuple[float, ...]) -> None:
        """Lose, repeat, delay and refuse single requests."""
        link = self.processes[process].link
        if link is not None:
            link.chances = Chances(*chances)
            self._until(f"disturb {process}", seconds, lambda: setattr(link, "chances", QUIET))

    def lag(self, server: int, seconds: float) -> None:
        self.servers.freeze(server)
        self._until("lag", seconds, self.servers.thaw)

    def connect(self, process: str, server: int) -> None:
        """Connect the process to that API server from its next start on."""
        self.processes[process].server = server

    def skew(self, process: str, seconds: float) -> None:
        self.processes[process].skew_seconds = seconds

    def lose_runtime(self, node: str, seconds: float) -> None:
        runtime = self.runtimes[node]
        failure = RuntimeUnavailable("simulated")
        calls = ("Version", "ListContainers", "ContainerStatus", "PodSandboxStatus", "ExecSync")
        runtime.failures.update(dict.fromkeys(calls, failure))
        runtime.break_streams()
        self._until(f"runtime {node}", seconds, runtime.failures.clear)

    def expire(self) -> None:
        """Make every resource version too old."""
        revision = self.registry.store.next_revision()
        for each in self.registry.store.collections.values():
            each._history.clear()
            each._history_bytes = 0
            each.floor = revision

    def _until(self, fault: str, seconds: float, undo: Callable[[], object]) -> None:
        def heal() -> None:
            if self._undo.get(fault) is heal:
                del self._undo[fault]
            undo()

        self._undo[fault] = heal
        self.after(seconds, f"end of {fault}", heal)

    def after(self, seconds: float, what: str, call: Callable[[], object]) -> None:
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
        for undo in list(self._undo.values()):
            undo()
        for each in self.processes.values():
            each.start()

    def finish_edits(self) -> None:
        """Complete what edits have begun, and end the pauses: marks of a paused pod depend on its history."""
        for node in NODE_NAMES:
            self._register(node)
        for name, container in list(self._containers.items()):
            self._start_again(name, container)
        for name, pod in self.objects(PODS).items():
            if "deletionTimestamp" in pod["metadata"]:
                self.delete_pod(name)
            else:
                self._initialized(name, "True")
        for name in self.objects(PODS):
            self.pause("pod", name, None)
        for name in self.objects(MARKERS):
            self.pause("marker", name, None)

    # Commands of probes.

    async def _run_command(self, runtime: ScriptedRuntime, call: ExecCall) -> ExecResult:
        container = runtime.containers[call.container_id]
        pod = next((name for name, each in self._containers.items() if each is container), "")
        code, output = self.outcomes.get((pod, call.command[0]), (0, "fine"))
        return ExecResult(code, output.encode(), b"")


def marker_spec(name: str, random: Random) -> Json:
    """One to three probes; names, conditions and keys collide often."""
    names = random.choice([("p",), ("p", "way"), ("pp", "p", "way")])
    probes = []
    conditions: set[str] = set()
    for each in names:
        condition = random.choice([None, *strategies.CONDITIONS])
        policies = random.choice(strategies.POLICIES)
        if condition in conditions:
            condition = None
        if condition is None and not policies:
            condition = f"c/{each}"
        conditions.add(condition or "")
        probe = probe_wire(
            each,
            condition=condition,
            policies=policies,
            handler={"exec": {"command": [f"{name}-{each}", str(random.randrange(3))]}},
            periodSeconds=random.choice([3, 5, 10]),
            failureThreshold=random.choice([1, 1, 2]),
            successThreshold=random.choice([1, 1, 2]),
        )
        probes.append(probe)
    apps = random.choice([["web"], ["web"], ["web"], ["web", "db"], ["db"]])
    expression = {"key": "app", "operator": "In", "values": apps}
    return {"selector": {"matchExpressions": [expression]}, "probes": probes}
