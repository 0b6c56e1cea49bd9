"""Counts the calls and files of the way of one result, in the daemon and in the manager.

Counted are the call events of code under kruise_probe/ without _pb, resumptions of coroutines included. Daemon: from the
timer's callback to the write of the status on the socket. Manager: from the bytes of the watch to the write of the pod's patch.
The API server, nodes and pods are fakes in this process; the program runs in another one, traced. Each figure is the least of
several results of a warm process, as other timers may fire in between.
"""

import asyncio
import json
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, Final

from support.embedded_cluster import EmbeddedCluster, embedded_cluster
from support.fake_runtime import ScriptedRuntime, exit_with, served, succeed
from support.hollow import probe

RESULTS: Final = 8
PAUSE_SECONDS: Final = 2.5
Call = tuple[str, str]


class Tracer:
    """A profile function that keeps the calls between the begin and the end of each result."""

    def __init__(self, mode: str, out: Path) -> None:
        self._manager = mode == "manager"
        self._out = out
        self._calls: list[Call] | None = None

    def __call__(self, frame: FrameType, event: str, _arg: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        _, ours, path = code.co_filename.partition("/kruise_probe/")
        if ours and "/_pb/" not in path:
            if self._begins(code.co_name, path, frame):
                self._calls = []
            if self._calls is not None:
                self._calls.append((path, code.co_name))
        elif (
            self._calls
            and code.co_name == "write"
            and code.co_filename.endswith("asyncio/selector_events.py")
            and self._ends(bytes(frame.f_locals["data"][:200]))
        ):
            with self._out.open("a") as out:
                out.write(json.dumps(self._calls) + "\n")
            self._calls = None

    def _begins(self, name: str, path: str, frame: FrameType) -> bool:
        if not self._manager:
            return (name, path) == ("_fire", "daemon/schedule.py")
        data = bytes(frame.f_locals["data"]) if name == "data_received" else b""
        return b'"NodePodProbe"' in data and b'"MODIFIED"' in data

    def _ends(self, data: bytes) -> bool:
        method, _, rest = data.partition(b" ")
        path = rest.partition(b"?")[0].partition(b" ")[0]
        return (
            method in (b"PATCH", b"PUT")
            and path.endswith(b"/status")
            and (b"/pods/" in path if self._manager else b"/nodepodprobes/" in path)
        )


def run_traced(
    mode: str,
    out: Path,
    arguments: list[str],
) -> None:
    """Run the program in this process; the tracer writes each result to `out`."""
    from kruise_probe.cli.main import main

    sys.argv = ["kruise-probe", mode, *arguments]
    sys.setprofile(Tracer(mode, out))
    main()


@asynccontextmanager
async def traced(
    mode: str, cluster: EmbeddedCluster, folder: Path, *flags: str
) -> AsyncIterator[Path]:
    out = folder / f"{mode}.calls"
    log = folder / f"{mode}.log"
    kubeconfig = cluster.proxy.write_kubeconfig(folder)
    command = (sys.executable, __file__, mode, str(out), f"--kubeconfig={kubeconfig}")
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command, *flags, stdout=output, stderr=output
        )
    try:
        yield out
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()
        if not out.exists():
            sys.stderr.write(log.read_text())


async def manager_calls(cluster: EmbeddedCluster, folder: Path) -> Path:
    state = ["Succeeded"]
    cluster.daemons.result_of = lambda _pod, _probe: (state[0], "fine")
    await cluster.hollow.add_node("node-1")
    await cluster.hollow.add_pod(1, node="node-1")
    await cluster.hollow.add_marker()
    flags = ("--enable-leader-election=false", "--health-probe-addr=0", "--metrics-addr=0")
    async with traced("manager", cluster, folder, *flags) as out:
        for number in range(RESULTS):
            await cluster.daemons.renew_lease("node-1")
            await asyncio.sleep(PAUSE_SECONDS)
            state[0] = ("Failed", "Succeeded")[number % 2]
            await cluster.daemons.write("node-1")
        await asyncio.sleep(PAUSE_SECONDS)
    return out


async def daemon_calls(cluster: EmbeddedCluster, folder: Path) -> Path:
    runtime = ScriptedRuntime()
    await cluster.hollow.add_node_pod_probe("node-1", [probe("marker#healthy")])
    runtime.start("uid-1")
    async with served(runtime) as endpoint:
        flags = ("--node-name=node-1", f"--cri-endpoint={endpoint}", "--addr=0")
        async with traced("daemon", cluster, folder, *flags) as out:
            for number in range(RESULTS):
                await asyncio.sleep(PAUSE_SECONDS)
                runtime.default_script = exit_with(1) if number % 2 else succeed()
    return out


def report(mode: str, out: Path, *, files: bool) -> None:
    results = [[tuple(load) for load in json.loads(line)] for line in out.read_text().splitlines()]
    calls = min(results[1:], key=len)
    counts = Counter(path for path, _ in calls)
    moves = sum(a != b for (a, _), (b, _) in pairwise(calls))
    print(
        f"{mode}: {len(calls)} calls of {len(set(calls))} functions in {len(counts)} files,"
        f" {moves} changes of file (least of {len(results) - 1} results)"
    )
    if files:
        for path, count in counts.items():
            names = Counter(name for each, name in calls if each == path)
            print(f"  {count:3} {path}: {', '.join(f'{n} {c}' for n, c in names.items())}")


async def measure(*, files: bool) -> None:
    for mode, work in (("daemon", daemon_calls), ("manager", manager_calls)):
        with tempfile.TemporaryDirectory() as folder:
            async with embedded_cluster(Path(folder)) as cluster:
                report(
                    mode,
                    await work(cluster, Path(folder)),
                    files=files,
                )


if __name__ == "__main__":
    run_traced(
        sys.argv[1],
        Path(sys.argv[2]),
        sys.argv[3:],
    )
