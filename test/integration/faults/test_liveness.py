"""A process that was frozen says on /healthz that it was, and why, and calls nothing failed that it did not hear."""

import asyncio
import signal
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from support import programs
from support.fake_runtime import ScriptedRuntime, served, succeed
from support.hollow import node_name

from kruise_probe.api.keys import NamespacedName
from kruise_probe.serving.stalls import MAX_LAG_SECONDS

Json = dict[str, Any]

FROZEN_SECONDS = MAX_LAG_SECONDS + 1.5
"""The loop's clock goes on meanwhile; a tick of a second may just have begun."""


async def test_a33_manager_and_daemon_that_were_frozen_are_not_healthy(
    arena: Any, tmp_path: Path
) -> None:
    await arena.hollow.add_node(node_name(0))
    with tempfile.TemporaryDirectory(prefix="cri-") as sockets:
        socket = Path(sockets) / "cri.sock"
        kubeconfig = arena.proxy.write_kubeconfig(tmp_path)
        flags = ("--node-name", node_name(0), "--cri-endpoint", f"unix://{socket}")
        async with (
            served(ScriptedRuntime(), socket),
            arena.manager() as manager,
            programs.running("daemon", kubeconfig, tmp_path, *flags) as daemon,
        ):
            both = (manager, daemon)
            for each in both:
                await each.ready()
                assert (await each.get("healthz"))[0] == 200
                each.send(signal.SIGSTOP)
            await asyncio.sleep(FROZEN_SECONDS)
            for each in both:
                each.send(signal.SIGCONT)

            async def told(program: programs.Program) -> bool:
                status, text = await program.get("healthz")
                return status == 503 and "the event loop was blocked for" in text

            for each in both:
                await each.until("it says that it was frozen", lambda each=each: told(each))


COMMANDS = 12


async def test_a_daemon_that_was_frozen_fails_no_probe_that_was_answered_in_time(
    arena: Any, tmp_path: Path
) -> None:
    """Commands of 1 s with a timeout of 5 s, some in flight when it is stopped, for seven seconds."""
    runtime = ScriptedRuntime()
    runtime.start("uid-1", "main")
    commands = [("check", str(number)) for number in range(COMMANDS)]
    for command in commands:
        runtime.on_exec(*command, script=succeed(after_seconds=1.0))
    probes = [
        {
            "name": f"marker#p{command[1]}",
            "containerName": "main",
            "probe": {"exec": {"command": list(command)}, "timeoutSeconds": 5},
        }
        for command in commands
    ]
    name = node_name(0)
    await arena.hollow.ask_node(name, probes)

    def states(report: Json) -> list[str]:
        pods = (report.get("status") or {}).get("podProbeStatuses") or ()
        return [state["state"] for pod in pods for state in pod["probeStates"]]

    async def under_way() -> bool:
        return runtime.in_flight >= 3

    def asked_again(since: int) -> Callable[[], Awaitable[bool]]:
        async def asked() -> bool:
            return {each.command for each in runtime.execs[since:]} == set(commands)

        return asked

    with tempfile.TemporaryDirectory(prefix="cri-") as sockets:
        socket = Path(sockets) / "cri.sock"
        kubeconfig = arena.proxy.write_kubeconfig(tmp_path)
        flags = ("--node-name", name, "--cri-endpoint", f"unix://{socket}")
        async with (
            served(runtime, socket),
            programs.running("daemon", kubeconfig, tmp_path, *flags) as daemon,
        ):
            await arena.world.reports.until(
                "all have succeeded",
                lambda report: states(report) == ["Succeeded"] * COMMANDS,
                name=name,
            )
            await daemon.until("some are under way", under_way)
            daemon.send(signal.SIGSTOP)
            await asyncio.sleep(7)
            daemon.send(signal.SIGCONT)
            for _ in range(2):  # what follows the second time has been published after the first
                await daemon.until("all are asked again", asked_again(len(runtime.execs)))

    history = arena.world.reports.history[NamespacedName("", name)]
    assert "Failed" not in {state for report in history for state in states(report)}
