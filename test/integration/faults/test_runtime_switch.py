"""The container runtime moves to another socket while calls to the first one are in flight. Both are processes."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support import programs
from support.hollow import node_name
from support.patience import PATIENCE_SECONDS

NODE = node_name(0)
RUNTIME = """
import asyncio, pathlib, sys
from support.fake_runtime import ScriptedRuntime, served, succeed

class Runtime(ScriptedRuntime):
    def _called(self, name):
        print(name, flush=True)
        super()._called(name)

    async def container_status(self, container_id):
        self._called("ContainerStatus")
        if sys.argv[2] == "hangs":
            await asyncio.Event().wait()
        return await super().container_status(container_id)

async def main():
    runtime = Runtime(has_events=True, default_script=succeed(sys.argv[2].encode()))
    runtime.start("uid-1")
    async with served(runtime, pathlib.Path(sys.argv[1])):
        while await asyncio.to_thread(sys.stdin.readline):
            runtime.start("uid-1")

asyncio.run(main())
"""


class RuntimeProcess:
    """A container runtime in a process; its commands print `kind`, or its statuses hang."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def until_called(self, name: str) -> None:
        assert self._process.stdout
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (line := await self._process.stdout.readline()).strip() != name.encode():
                assert line, "the runtime has ended"

    def restart_container(self) -> None:
        assert self._process.stdin
        self._process.stdin.write(b"\n")


@asynccontextmanager
async def runtime_process(socket: Path, kind: str) -> AsyncIterator[RuntimeProcess]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", RUNTIME, str(socket), kind,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    try:
        yield RuntimeProcess(process)
    finally:
        process.kill()
        await process.communicate()


async def test_events_and_statuses_continue_after_a_switch_of_the_endpoint(
    cluster: Any, tmp_path: Path
) -> None:
    probe = {"exec": {"command": ["check"]}, "timeoutSeconds": 5}
    entry = {"name": "marker#probe", "containerName": "main", "probe": probe}
    await cluster.hollow.add_node_pod_probe(NODE, [entry])
    kubeconfig = cluster.proxy.write_kubeconfig(tmp_path)

    def result() -> tuple[str, str]:
        status = (cluster.api.node_pod_probes.newest(NODE) or {}).get("status") or {}
        for pod in status.get("podProbeStatuses") or ():
            for each in pod["probeStates"]:
                return each.get("message", ""), each.get("containerID", "")
        return "", ""

    with tempfile.TemporaryDirectory(prefix="cri-") as folder:
        old, new = Path(folder) / "old.sock", Path(folder) / "new.sock"
        flags = (f"--node-name={NODE}", f"--cri-endpoint={old}", f"--cri-endpoint={new}")
        async with (
            runtime_process(old, "hangs") as first,
            programs.running("daemon", kubeconfig, tmp_path, *flags),
        ):
            await first.until_called("GetContainerEvents")
            await first.until_called("ContainerStatus")
            async with runtime_process(new, "fine") as second:
                old.unlink()
                await second.until_called("GetContainerEvents")
                await cluster.api.node_pod_probes.wait(
                    "the second runtime's container is probed", lambda: result()[0] == "fine"
                )
                before = result()[1]
                second.restart_container()
                await cluster.api.node_pod_probes.wait(
                    "its next container is probed", lambda: result()[1] not in ("", before)
                )
