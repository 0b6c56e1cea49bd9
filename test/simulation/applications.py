"""What the applications of a simulated cluster are, and the edits of them.

An application answers each kind of handler, well or badly, after a while or never. An answer that a container has begun
comes also after its exit: another container of the pod may send it.
"""

import asyncio
import math
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import NamedTuple

import msgspec
from simulation import edits, faults
from simulation.world import NAMESPACE, POD_NAMES, World
from support.builders import policy_wire, probe_wire
from support.fake_runtime import ExecCall, ScriptedRuntime
from support.wire import Json

from kruise_probe.api.resources import MARKERS, PODS
from kruise_probe.api.v1alpha1 import ContainerProbe
from kruise_probe.client.request import PatchType
from kruise_probe.daemon.cri.runtime import ContainerState, ExecResult
from kruise_probe.daemon.probers.judging import criteria_of
from kruise_probe.daemon.probers.prober import (
    UNLIMITED,
    Output,
    Prober,
    ProbeResult,
    Target,
    failure,
    success,
)

MARKER = "app"
QUICK = 0.01
HANG = math.inf
HANDLERS: dict[str, Json] = {
    "exec": {"exec": {"command": ["exec"]}},
    "http": {"httpGet": {"port": 80}},
    "tcp": {"tcpSocket": {"port": 80}},
    "grpc": {"grpc": {"port": 80}},
}
"""The probes of the marker, by name. Probe `x` writes the condition `c/x` and the label `l-x`."""

CRITERIA: dict[str, Json] = {
    "exec": {
        "extract": {"regex": "f(.*)e"},
        "successWhen": {"exitCodes": [0, 2], "regex": "^fine$"},
    },
    "http": {
        "extract": {"jsonPath": ".state"},
        "successWhen": {"statusCodes": [200, 503], "regex": "fine"},
    },
}
"""What half of the markers have: a good command prints "fine" and ends with 0, a bad one ends with 1; a page is 503 if it is bad."""

MANY_MANAGERS = 11
"""The API server keeps ten field managers of an object, and merges the oldest."""


class Behaviour(NamedTuple):
    """How an application answers one kind of attempt; infinite `seconds` are a hang."""

    good: bool = True
    seconds: float = QUICK


class Applications:
    """Runs the commands and serves the network requests of the world's probes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._behaviours: dict[tuple[str, str], Behaviour] = {}
        for daemon in world.daemons:
            runtime = world.runtimes[daemon.node]
            runtime.default_script = partial(self._run_command, runtime)
            daemon.network_prober = partial(NetworkProber, self, runtime)

    def behaviour(self, pod: str, probe: str) -> Behaviour:
        return self._behaviours.get((pod, probe), Behaviour())

    def set(self, pod: str, probe: str, behaviour: Behaviour) -> None:
        self._behaviours[pod, probe] = behaviour

    def in_container(self, runtime: ScriptedRuntime, id: str, probe: str) -> Behaviour:
        """The behaviour of the pod of a container, which may have been replaced or removed."""
        found = runtime.containers.get(id)
        for name, newest in self._world.containers.items():
            if found and newest.pod_uid == found.pod_uid:
                return self.behaviour(name, probe)
        return Behaviour(good=False)

    async def _run_command(self, runtime: ScriptedRuntime, call: ExecCall) -> ExecResult:
        good, seconds = self.in_container(runtime, call.container_id, call.command[0])
        await asyncio.sleep(min(seconds, call.timeout_seconds + 1))
        if good:
            return ExecResult(0, b"fine", b"")
        return ExecResult(1, b"", b"bad")


class NetworkProber(Prober):
    """Gets the application's answer without a network."""

    def __init__(
        self,
        applications: Applications,
        runtime: ScriptedRuntime,
        entry: ContainerProbe,
    ) -> None:
        self._applications = applications
        self._runtime = runtime
        self._entry = entry
        self._name = entry.name.partition("#")[2]
        self._timeout = entry.probe.effective_timeout_seconds

    async def run(self, target: Target, *_: object) -> ProbeResult:
        good, seconds = self._applications.in_container(
            self._runtime,
            target.container_id,
            self._name,
        )
        await asyncio.sleep(min(seconds, self._timeout))
        if seconds >= self._timeout:
            return failure("timed out", timed_out=True)
        state = "fine" if good else "bad"
        if self._entry.criteria:
            return await self._judged(200 if good else 503, state)
        return success(state) if good else failure(state)

    async def _judged(self, code: int, state: str) -> ProbeResult:
        """A page whose state is in its code and its body."""
        criteria = criteria_of(self._entry)
        if not criteria.allows(code, is_success=code == 200):
            return failure(f"{code}: {state}")
        body = msgspec.json.encode({"state": state})
        output = Output(body, is_cut=False)
        return await criteria.judge(output, UNLIMITED, math.inf)


# Edits and faults of plans.


def put_application_marker(world: World, variant: int) -> None:
    """Create the marker. `variant` is the seed of its numbers and policies."""
    if world.get(MARKERS, MARKER) is None:
        create_marker_of(world, *_probes(variant))


def create_marker_of(world: World, *probes: Json) -> None:
    """Create the marker of all applications, with these probes."""
    selector = {"matchLabels": {"app": "web"}}
    edits.create_marker(world, MARKER, {"selector": selector, "probes": list(probes)})


def _probes(variant: int) -> Iterator[Json]:
    random = Random(variant)
    stale = Random(f"stale {variant}")
    criteria = Random(f"criteria {variant}")
    for name, handler in HANDLERS.items():
        states = {"Succeeded": "up", "Failed": "down"}
        if random.random() < 0.5:
            states["Unknown"] = "unknown"
        timeout = random.choice([1, 2])
        policies = [policy_wire(state, {f"l-{name}": text}) for state, text in states.items()]
        wire = probe_wire(
            name,
            condition=f"c/{name}",
            policies=policies,
            handler=handler,
            periodSeconds=random.choice([3, 5, 10]),
            timeoutSeconds=timeout,
            successThreshold=random.choice([1, 1, 2]),
            failureThreshold=random.choice([1, 2, 3, 9]),
            initialDelaySeconds=random.choice([0, 0, 5]),
        )
        wire["whenTerminating"] = random.choice(["Keep", "Probe"])
        wire["whenStale"] = stale.choice(["Keep", "Unknown", "Unknown"])
        if name in CRITERIA and criteria.random() < 0.5:
            wire |= CRITERIA[name]
        yield wire


def behave(
    world: World,
    pod: str,
    probe: str,
    good: bool,
    seconds: float,
) -> None:
    """From now on the application answers so."""
    assert world.applications
    world.applications.set(pod, probe, Behaviour(good, seconds))


def promote(world: World, pod: str, old: str) -> None:
    """`pod` says that it is the primary. The others do not any more (`demoted`), still do (`claims`), or hang."""
    seconds = HANG if old == "hangs" else QUICK
    for name in POD_NAMES:
        if name == pod:
            behave(world, name, "exec", True, QUICK)
        elif old != "claims":
            behave(world, name, "exec", False, seconds)


def finish_pod(world: World, name: str, phase: str) -> None:
    """All containers of a pod end."""
    container = world.containers.get(name)
    if container:
        exit_code = 0 if edits.has_completed(container) else 137
        _end_container(
            world,
            name,
            exit_code,
            {"phase": phase},
        )


def complete_container(world: World, name: str) -> None:
    """The container ends as planned, and another container of the pod, which is not probed, runs on."""
    container = world.containers.get(name)
    if container and container.state is ContainerState.RUNNING:
        ended = {"name": "main", "state": {"terminated": {"exitCode": 0}}}
        _end_container(
            world,
            name,
            0,
            {"containerStatuses": [ended]},
        )


def _end_container(
    world: World,
    name: str,
    exit_code: int,
    status: Json,
) -> None:
    """The kubelet reports `status` a second later."""
    pod = world.get(PODS, name)
    if pod is None or pod["status"]["phase"] != "Running":
        return
    uid = edits.uid_of(world, name)
    node = edits.node_of(world, name)
    world.runtimes[node].stop(world.containers[name], exit_code=exit_code)

    def report() -> None:
        if edits.uid_of(world, name) == uid:
            world.merge_status(name, status)

    world.after(1.0, f"{name} has {status}", report)


def reboot(
    world: World,
    node: str,
    seconds: float,
    container_seconds: float,
) -> None:
    """Node and daemon are down for `seconds`; the containers start `container_seconds` later, as new ones."""
    daemon = world.processes[f"daemon-{node}"]
    daemon.kill()
    for name, container in world.containers.items():
        pod = world.get(PODS, name)
        if pod is None or pod["spec"]["nodeName"] != node:
            continue
        if container.state is ContainerState.RUNNING:
            edits.restart_container(world, name, seconds + container_seconds)
    world.after(seconds, f"start {daemon.name}", daemon.start)


def lose_daemon_and_lease(world: World, node: str, seconds: float) -> None:
    """The daemon is dead for `seconds`; its Lease is deleted in the middle."""
    faults.kill(world, f"daemon-{node}", seconds)
    delete = partial(edits.delete_lease, world, node)
    world.after(seconds / 2, f"delete the Lease of {node}", delete)


def crowd(world: World, name: str) -> None:
    """Many clients write labels of a pod."""
    if world.get(PODS, name) is None:
        return
    for number in range(MANY_MANAGERS):
        path = f"{PODS.path(NAMESPACE, name)}?fieldManager=tool-{number}"
        labels = {f"tool-{number}": str(world.loop.time())}
        world.request(
            "PATCH",
            path,
            {"metadata": {"labels": labels}},
            PatchType.MERGE,
        )
