"""A process that was stopped reports this on /healthz, and does not fail probes whose response it missed."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Any

from support.fake_runtime import ScriptedRuntime, succeed
from support.hollow import node_name
from support.programs import Program
from support.target import results_of

from kruise_probe.api.keys import NamespacedName
from kruise_probe.serving.stalls import MAX_LAG_SECONDS

Json = dict[str, Any]

FROZEN_SECONDS = MAX_LAG_SECONDS + 1.5
"""The loop's clock goes on meanwhile; a tick of a second may just have begun."""


async def test_a33_manager_and_daemon_that_were_frozen_are_not_healthy(cluster: Any) -> None:
    await cluster.hollow.add_node(node_name(0))
    async with (
        cluster.manager() as manager,
        cluster.daemon(node_name(0), ScriptedRuntime()) as daemon,
    ):
        both = (manager, daemon)
        for each in both:
            await each.ready()
            assert (await each.get("healthz"))[0] == 200
            each.send(signal.SIGSTOP)
        await asyncio.sleep(FROZEN_SECONDS)
        for each in both:
            each.send(signal.SIGCONT)

        async def reports_it(program: Program) -> bool:
            status, text = await program.get("healthz")
            return status == 503 and "the event loop was blocked for" in text

        for each in both:
            await each.until("it reports the stall", lambda each=each: reports_it(each))


COMMANDS = 12


async def test_a_daemon_that_was_frozen_fails_no_probe_that_was_answered_in_time(
    cluster: Any,
) -> None:
    """Commands of 1 s with a timeout of 10 s, some in flight when it is stopped, for twelve seconds."""
    runtime = ScriptedRuntime()
    runtime.start("uid-1", "main")
    commands = [("check", str(number)) for number in range(COMMANDS)]
    for command in commands:
        runtime.on_exec(*command, script=succeed(after_seconds=1.0))
    probes = [
        {
            "name": f"marker#p{command[1]}",
            "containerName": "main",
            "probe": {"exec": {"command": list(command)}, "timeoutSeconds": 10},
        }
        for command in commands
    ]
    name = node_name(0)
    await cluster.hollow.add_node_pod_probe(name, probes)

    def states(node_pod_probe: Json) -> list[str]:
        return [state for state, _ in results_of(node_pod_probe).values()]

    async def some_in_flight() -> bool:
        return runtime.in_flight >= 3

    def all_run_again(since: int) -> Callable[[], Awaitable[bool]]:
        async def have_run() -> bool:
            return {each.command for each in runtime.execs[since:]} == set(commands)

        return have_run

    async with cluster.daemon(name, runtime) as daemon:
        await cluster.api.node_pod_probes.until(
            "all have succeeded",
            lambda found: states(found) == ["Succeeded"] * COMMANDS,
            name=name,
        )
        await daemon.until("some commands are in flight", some_in_flight)
        daemon.send(signal.SIGSTOP)
        await asyncio.sleep(12)
        daemon.send(signal.SIGCONT)
        for _ in range(2):  # results of the first round are written before the second round ends
            await daemon.until("all commands run again", all_run_again(len(runtime.execs)))

    history = cluster.api.node_pod_probes.history[NamespacedName("", name)]
    assert "Failed" not in {state for report in history for state in states(report)}
