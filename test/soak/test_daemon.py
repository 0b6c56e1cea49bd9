"""A daemon of its own process between a scripted runtime and an embedded API server, seen from both sides."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from soak.conftest import Limits
from support.fake_runtime import ExecCall, hang, succeed
from support.forms import forms
from support.output import print_line
from support.process_node import ProcessNode, process_node
from support.programs import Program

from kruise_probe.daemon.cri.runtime import ExecResult

Json = dict[str, Any]
CAP = 16
SETTLED_SECONDS = 3.0


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ProcessNode]:
    async with process_node(tmp_path) as made:
        yield made


async def begun(node: ProcessNode, daemon: Program, name: str, times: int) -> float:
    """When the command began for that many times in all."""

    async def so_often() -> bool:
        return len(node.exec_times.get(name, ())) >= times

    await daemon.until(f"{name} runs for the {times}. time", so_often)
    return node.exec_times[name][times - 1]


@forms(short="5-s", long="a-minute")
async def test_thirty_probes_are_spread_do_not_drift_and_cost_one_list_a_second(
    node: ProcessNode, short: bool, limits: Limits
) -> None:
    seconds = 5.0 if short else 60.0
    node.add_pods(30, succeed())
    async with node.running():
        began = await node.write_spec()
        await node.until_all_are("Succeeded", 30)
        await asyncio.sleep(SETTLED_SECONDS)
        node.exec_times.clear()
        calls, execs = node.runtime.calls.copy(), len(node.runtime.execs)
        counted_at = asyncio.get_running_loop().time()
        await asyncio.sleep(seconds)
        seconds = asyncio.get_running_loop().time() - counted_at
        calls = node.runtime.calls - calls
        execs = len(node.runtime.execs) - execs
    phases = sorted(each[0] % 1.0 for each in node.exec_times.values())
    gaps = [b - a for a, b in pairwise([*phases, phases[0] + 1.0])]
    drifts = [abs((at - each[0]) % 1.0) for each in node.exec_times.values() for at in each]
    drift = max(min(each, 1.0 - each) for each in drifts)
    others = {name: n for name, n in calls.items() if name != "ExecSync"}
    print_line(
        f"30 probes a second for {seconds:.1f} s: {execs} execs beside {others}; widest gap between phases "
        f"{max(gaps) * 1000:.0f} ms; drift {drift * 1000:.0f} ms at most; "
        f"{node.statuses(since=began)} statuses since the start"
    )
    assert set(others) <= {"ListContainers"}
    assert others.get("ListContainers", 0) <= seconds + 2
    assert execs >= 30
    limits.check("97 % of 30 execs a second run", execs >= 29 * seconds)
    limits.check("phases of 30 probes are less than 0.5 s apart", max(gaps) < 0.5)
    limits.check("phases drift by at most 50 ms", drift <= 0.05)


@forms(short="3-s", long="20-s")
async def test_no_more_execs_run_at_once_than_the_cap_and_its_places_are_used(
    node: ProcessNode, short: bool, limits: Limits
) -> None:
    seconds = 3.0 if short else 20.0
    node.add_pods(100, succeed(after_seconds=0.3))
    async with node.running(max_concurrent_execs=str(CAP)):
        await node.write_spec()
        await node.until_all_are("Succeeded", 100)
        before = len(node.runtime.execs)
        await asyncio.sleep(seconds)
        rate = (len(node.runtime.execs) - before) / seconds
    most = node.runtime.most_in_flight
    print_line(
        f"100 execs of 0.3 s wanted a second: {most} at once, {rate:.1f}/s of {CAP / 0.3:.1f}/s that have room"
    )
    assert most <= CAP
    limits.check("execs use 90 % of their places", rate >= 0.9 * CAP / 0.3)


@forms(short="2-runs", long="4-runs")
async def test_an_exec_that_hangs_fails_in_time_and_never_doubles(
    node: ProcessNode, short: bool, limits: Limits
) -> None:
    node.container("stuck", hang())
    node.add_probe("stuck", periodSeconds=1, timeoutSeconds=1)
    async with node.running() as daemon:
        await node.write_spec()
        began = await begun(node, daemon, "stuck", 1)
        await node.until_all_are("Failed", 1)
        took = asyncio.get_running_loop().time() - began
        await begun(node, daemon, "stuck", 2 if short else 4)
    pauses = ", ".join(f"{b - a:.1f}" for a, b in pairwise(node.exec_times["stuck"]))
    print_line(
        f"an exec that hangs, timeout 1 s: Failed after {took:.2f} s; next tries after {pauses} s; "
        f"{node.runtime.most_in_flight} at once"
    )
    assert node.runtime.most_in_flight == 1
    limits.check("an exec with a timeout of 1 s is Failed after 2 s", took <= 2.0)


async def test_new_entries_and_edits_take_effect_at_once(node: ProcessNode, limits: Limits) -> None:
    taken: dict[str, float] = {}
    async with node.running() as daemon:
        await daemon.ready()
        node.container("old", succeed())
        node.add_probe("old", periodSeconds=30)
        asked = await node.write_spec()
        taken["new entry -> first exec"] = await begun(node, daemon, "old", 1) - asked
        node.add_probe("old", periodSeconds=1)
        asked = await node.write_spec()
        taken["period edited from 30 to 1 s -> next exec"] = (
            await begun(node, daemon, "old", 2) - asked
        )
        asked = asyncio.get_running_loop().time()
        node.container("new", succeed(), new=True)
        node.add_probe("new", periodSeconds=30, initialDelaySeconds=2)
        await node.write_spec()
        late = await begun(node, daemon, "new", 1) - asked - 2.0
        taken["new container, after its initial delay of 2 s"] = late
    print_line("; ".join(f"{what}: {seconds * 1000:.0f} ms" for what, seconds in taken.items()))
    assert late >= -0.01
    limits.check("a new entry runs within 50 ms", taken["new entry -> first exec"] <= 0.05)
    limits.check(
        "an edited period of 1 s takes effect within 1.1 s",
        taken["period edited from 30 to 1 s -> next exec"] <= 1.1,
    )
    limits.check("a probe runs within 50 ms of its initial delay", late <= 0.05)


@forms(short="6-s", long="a-minute")
async def test_messages_that_change_each_second_are_written_together(
    node: ProcessNode, short: bool
) -> None:
    seconds = 6.0 if short else 60.0
    numbers = itertools.count()

    async def talkative(_: ExecCall) -> ExecResult:
        return ExecResult(0, f"number {next(numbers)}".encode(), b"")

    node.add_pods(30, talkative, timeoutSeconds=10)
    async with node.running():
        await node.write_spec()
        await node.until_all_are("Succeeded", 30)
        await asyncio.sleep(SETTLED_SECONDS)
        since = asyncio.get_running_loop().time()
        await asyncio.sleep(seconds)
        statuses, events = node.statuses(since=since), node.events(since=since)
        seconds = asyncio.get_running_loop().time() - since
    conflicts = node.cluster.proxy.count(lambda seen: seen.code == 409 and not seen.about_leases)
    print_line(
        f"30 probes with new messages each second, {seconds:.1f} s: {statuses} statuses, {events} events, "
        f"{dict(conflicts) or 'no'} conflicts"
    )
    assert 1 <= statuses <= seconds / 2 + 1
    assert events == 0
    assert not conflicts
