"""Timelines of one probe in a whole daemon, the rows of test/data/timelines.yaml."""

import asyncio
import math
from bisect import bisect_right
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.scripted_node import (
    BAD,
    HUNG,
    OK,
    ScriptedNode,
    loop_time,
    pod_of,
    probe_of,
    spec_of,
)
from support.tables import load_table
from support.wire import Json

from kruise_probe.api.node_pod_probe import ContainerProbeState
from kruise_probe.api.probe import Probe
from kruise_probe.api.times import parse_time
from kruise_probe.daemon.cri.runtime import ContainerState
from kruise_probe.daemon.places import EXECS, SOCKETS, Places, Tenant
from kruise_probe.daemon.probers.prober import CouldNotProbe, Reason

DATA = Path(__file__).parents[2] / "data"
TIMELINES = load_table(DATA / "timelines.yaml", {})
RESULTS = {
    "success": OK,
    "failure": BAD,
    "timeout": HUNG,
}
OTHER = Tenant("other", "uid")


class Actions:
    """What `do` of a row can name, with its arguments."""

    def __init__(self, node: ScriptedNode) -> None:
        self._node = node

    def start(self, ips: tuple[str, ...] = ("127.0.0.9",), **how: Any) -> None:
        self._node.containers.start(ips=tuple(ips), **how)

    def stop(self, state: str = "Exited", problem: str = "") -> None:
        self._node.containers.stop(state=ContainerState(state), problem=problem)

    def runtime(self, available: bool) -> None:
        self._node.containers.set_available(available)

    def edit(
        self,
        probe: Json | None = None,
        ip: str = "127.0.0.9",
        command: str = "check",
        **fields: int,
    ) -> None:
        """Write a probe: `probe`, or a command and these fields beside it."""
        if probe is None:
            probe = {"exec": {"command": [command]}, **fields}
        entry = probe_of(msgspec.convert(probe, Probe))
        self._node.api.put(spec_of(pod_of(entry, ip=ip)))

    def remove(self) -> None:
        """Remove the probe from the spec."""
        self._node.api.put(spec_of())

    def delete(self) -> None:
        """Delete the NodePodProbe."""
        self._node.api.remove()

    def answer(self, result: str, seconds: float = 0.0) -> None:
        """Every attempt from now on has this result, or none for a reason `<Reason>: <message>`."""
        reason, _, message = result.partition(": ")
        answer = RESULTS.get(result) or CouldNotProbe(Reason(reason), message)
        self._node.probers.answer(answer, seconds=seconds)

    def suspend(self, seconds: float) -> None:
        """Suspend the node: its wall clock goes on, the loop's does not."""
        self._node.suspended_seconds = seconds

    def stall(self, begins: bool) -> None:
        """Every attempt from now on begins before the end of a stall of the daemon, or none does."""
        self._node.stall_ended_at = math.inf if begins else -math.inf

    def occupy(self) -> None:
        """Take the only place of execs, and that of sockets, until `free`."""
        for places in (self._node.execs, self._node.sockets):
            place = places.request(OTHER, long=False)
            self._node.occupied.append(place)

    def free(self) -> None:
        of_execs, of_sockets = self._node.occupied
        self._node.execs.release(of_execs)
        self._node.sockets.release(of_sockets)


class Observer:
    """The values that rows compare, by the names of their columns."""

    def __init__(self, node: ScriptedNode) -> None:
        self._node = node
        self._attempts = 0
        self._writes = 0

    def since_last_row(self) -> Json:
        api = self._node.api
        attempts = self._node.probers.attempts
        seen: Json = {
            "state": (api.object and api.state()) or "",
            "ran": len(attempts) - self._attempts,
            "wrote": len(api.writes) - self._writes,
            "lists": self._node.containers.refreshes,
        }
        self._attempts = len(attempts)
        self._writes = len(api.writes)
        if seen["state"]:
            message = api.message()
            seen["message"] = message
            seen["bytes"] = len(message)
            published = api.states()["pod/marker#probe"]
            probed_at = parse_time(published.last_probe_time)
            assert probed_at is not None
            seen["container"] = bisect_right(self._node.containers.starts, probed_at)
        if attempts:
            target = attempts[-1].target
            seen["target"] = target.pod_ip or target.refusal
        return seen


def agrees(column: str, expected: Any, seen: Any) -> bool:
    if isinstance(expected, list):
        return seen in expected
    if expected and column in ("message", "target"):
        return bool(seen.startswith(expected))
    return bool(expected == seen)


@pytest.mark.parametrize("rows", TIMELINES.values(), ids=TIMELINES)
async def test_timeline_of_a_probe(rows: list[Json]) -> None:
    node = ScriptedNode()
    node.execs = Places(1, EXECS)
    node.sockets = Places(1, SOCKETS)
    node.api.put(spec_of())
    actions = Actions(node)
    observer = Observer(node)
    async with node.daemon():
        began = loop_time()
        for row in rows:
            columns = dict(row)
            await asyncio.sleep(began + columns.pop("at") - loop_time())
            done = columns.pop("do", {})
            seen = observer.since_last_row()
            for column, expected in columns.items():
                assert agrees(column, expected, seen[column]), (row, seen)
            for action, arguments in done.items():
                getattr(actions, action)(**arguments)
        changes = _changes(node)
    times = {change.last_transition_time for change in changes}
    assert len(node.recorder.events) == len(changes), "one event for each transition"
    assert len(times) == len(changes)
    assert node.probers.most_in_flight <= 1


def _changes(node: ScriptedNode) -> list[ContainerProbeState]:
    """The published results whose state differs from the one before."""
    changes: list[ContainerProbeState] = []
    before = None
    for write in node.api.writes:
        for pod in write.status.pod_probe_statuses or ():
            (state,) = pod.probe_states or ()
            if state.state != before:
                changes.append(state)
            before = state.state
    return changes
