"""A process that was frozen says on /healthz that it was, and why, before anybody relies on it again."""

import asyncio
import signal
import tempfile
from pathlib import Path
from typing import Any

from support import programs
from support.fake_runtime import ScriptedRuntime, served
from support.hollow import node_name

from kruise_probe.serving.loop_lag import MAX_LAG_SECONDS

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
