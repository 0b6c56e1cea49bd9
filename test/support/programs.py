"""The manager and the daemon as processes."""

import asyncio
import os
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
from support.fake_runtime import ScriptedRuntime, served
from support.patience import PATIENCE_SECONDS
from yarl import URL

from kruise_probe.api.times import loop_time

Look = Callable[[], Awaitable[bool]]

SECRETS = "/var/run/secrets"
LOOK_SECONDS = 0.05
"""Between two checks of another process."""
FETCH_SECONDS = 10.0

_OWN_SETTINGS = ("KRUISE_PROBE_", "KUBECONFIG", "NODE_NAME", "POD_NAMESPACE")

LISTEN_FLAGS = {
    "manager": ("--metrics-addr=127.0.0.1:0", "--health-probe-addr=127.0.0.1:0"),
    "daemon": ("--addr=127.0.0.1:0",),
}
"""Flags that listen on free ports, by mode."""


async def fetch(url: str, token: str = "") -> tuple[int, str]:
    """Status and text; status 0 if nothing listens."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=FETCH_SECONDS)) as session,
            session.get(url, headers=headers, ssl=False) as response,
        ):
            return response.status, await response.text()
    except (aiohttp.ClientError, OSError, TimeoutError):
        return 0, ""


def address_of(log: Path, path: str, *, since: int = 0) -> str:
    """The address at which a program serves a path such as /metrics, from its log; empty before it listens.

    `since` is where in the file the program's own run begins. Known when it listens only: a port that is chosen
    before, and free then, may be taken when the program starts.
    """
    quoted = re.compile(rb"[\"']%s[\"']" % path.encode())
    found = b""
    with log.open("rb") as lines:
        lines.seek(since)
        for line in lines:
            addresses = re.findall(rb"127\.0\.0\.1:\d+", line)
            if addresses and b"listening" in line and quoted.search(line):
                found = addresses[-1]
    return found.decode()


def sum_of(metric: str, exposition: str) -> float:
    """The sum of all series of that name."""
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in exposition.splitlines()
        if line.startswith((metric + "{", metric + " "))
    )


def _status_mb(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"process {pid} has no {name}")


async def until(what: str, holds: Look, *, seconds: float = PATIENCE_SECONDS) -> None:
    """Polls until `holds`, for conditions of other processes."""
    give_up_at = loop_time() + seconds
    while not await holds():
        assert loop_time() < give_up_at, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(LOOK_SECONDS)


class Program:
    """One run of a program; its output goes to `log`, which earlier runs of the name have begun."""

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, log: Path, log_begin: int
    ) -> None:
        self.name = name
        self.process = process
        self.log = log
        self._log_begin = log_begin
        self._addresses: dict[str, str] = {}
        self.secure = False
        """Whether its ports with /metrics speak TLS only: --metrics-secure."""

    @property
    def running(self) -> bool:
        return self.process.returncode is None

    @property
    def rss_mb(self) -> float:
        return _status_mb(self.process.pid, "VmRSS")

    @property
    def peak_mb(self) -> float:
        """The most that it ever had resident."""
        return _status_mb(self.process.pid, "VmHWM")

    def times_logged(self, text: str) -> int:
        return self.log.read_text(errors="replace").count(text)

    def has_logged(self, text: str) -> bool:
        return self.times_logged(text) > 0

    def tail(self, lines: int = 30) -> str:
        written = self.log.read_text(errors="replace").splitlines()
        return "\n".join(written[-lines:])

    async def ready(self, *, seconds: float = PATIENCE_SECONDS) -> None:
        """Returns once /readyz returns 200."""
        await self.until("is ready", lambda: self._answers("readyz"), seconds=seconds)

    async def _answers(self, path: str) -> bool:
        return (await self.get(path))[0] == 200

    async def get(self, path: str, token: str = "", *, scheme: str = "") -> tuple[int, str]:
        """Status and text; 0 when the program does not listen, or not yet."""
        name, *_ = re.split("[/?]", path)
        address = self.address(f"/{name}")
        if not address:
            return 0, ""
        if not scheme:
            scheme = "https" if self.secure and address == self.address("/metrics") else "http"
        return await fetch(f"{scheme}://{address}/{path}", token)

    async def is_healthy(self) -> bool:
        """A health check as by the kubelet, without a token."""
        return (await self.get("healthz"))[0] == 200

    def address(self, path: str) -> str:
        """Where it listens for a path; empty when it does not, or not yet."""
        if not self._addresses.get(path):
            self._addresses[path] = address_of(self.log, path, since=self._log_begin)
        return self._addresses[path]

    async def metric(self, name: str) -> float:
        """The sum of all series of that name."""
        return sum_of(name, (await self.get("metrics"))[1])

    async def until(self, what: str, holds: Look, *, seconds: float = PATIENCE_SECONDS) -> None:
        """Polls until `holds`; fails if the program ends."""

        async def holds_or_has_ended() -> bool:
            return await holds() or not self.running

        try:
            await until(f"{self.name}: {what}", holds_or_has_ended, seconds=seconds)
        except AssertionError as error:
            error.add_note(f"the end of its log:\n{self.tail()}")
            raise
        assert self.running, f"{self.name} has ended: {self.tail()}"

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def kill(self) -> None:
        """Sends SIGKILL."""
        if self.running:
            self.process.kill()
        await self.process.wait()

    async def terminate(self) -> tuple[int, float]:
        """SIGTERM; the exit code, and the seconds until then."""
        began = loop_time()
        self.process.terminate()
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = await self.process.wait()
        return code, loop_time() - began

    async def end(self) -> None:
        """Ends it in any case."""
        if not self.running:
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            async with asyncio.timeout(8):
                await self.process.wait()
        except TimeoutError:
            await self.kill()


class InPod(NamedTuple):
    """A service account's files where a pod has them, in a mount namespace of its own, instead of a kubeconfig."""

    account: Path
    server: str

    def prepared(self, command: Sequence[str]) -> list[str]:
        """The command, after a shell that prepares the files. Needs root."""
        place = f"mount -t tmpfs tmpfs {SECRETS} && cp -r {self.account}/. {SECRETS}/"
        return _with_mounts(place, command)

    @property
    def environ(self) -> dict[str, str]:
        server = URL(self.server)
        return {
            "KUBERNETES_SERVICE_HOST": str(server.host),
            "KUBERNETES_SERVICE_PORT": str(server.port),
        }


class ByName(NamedTuple):
    """A kubeconfig, and the only host names of the process: a file instead of /etc/hosts."""

    kubeconfig: Path
    hosts: Path

    def prepared(self, command: Sequence[str]) -> list[str]:
        """The command, after a shell that replaces the file."""
        place = f"mount --bind {self.hosts} /etc/hosts"
        return _with_mounts(place, [*command, f"--kubeconfig={self.kubeconfig}"])

    @property
    def environ(self) -> dict[str, str]:
        return {}


def _with_mounts(mount: str, command: Sequence[str]) -> list[str]:
    """The command in a mount namespace of its own, after a command line that mounts."""
    line = f"{mount} && exec {shlex.join(command)}"
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", line]


Access = Path | InPod | ByName
"""How a process finds its cluster; a path is that of a kubeconfig."""


def _placed(command: list[str], cluster: Access) -> tuple[list[str], dict[str, str]]:
    """The command and the environment with which it finds its cluster."""
    if isinstance(cluster, Path):
        return [*command, f"--kubeconfig={cluster}"], {}
    return cluster.prepared(command), cluster.environ


async def start(
    mode: str,
    cluster: Access,
    folder: Path,
    *flags: str,
    name: str = "",
    open_files: str = "",
) -> Program:
    """Starts `kruise-probe manager` or `daemon`; `open_files` are its limits, soft:hard."""
    name = name or mode
    log = folder / f"{name}.log"
    command = [sys.executable, "-m", "kruise_probe", mode, *LISTEN_FLAGS[mode], *flags]
    command, environ = _placed(command, cluster)
    if open_files:
        command = ["prlimit", f"--nofile={open_files}", *command]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_OWN_SETTINGS)}
    with log.open("ab") as output:
        begin = output.tell()
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=output,
            stderr=output,
            env={**kept, **environ, "PYTHONUNBUFFERED": "1"},
        )
    program = Program(name, process, log, begin)
    program.secure = "--metrics-secure" in flags
    return program


@asynccontextmanager
async def running(
    mode: str,
    cluster: Access,
    folder: Path,
    *flags: str,
    name: str = "",
) -> AsyncIterator[Program]:
    """The program for as long as the block runs."""
    program = await start(
        mode,
        cluster,
        folder,
        *flags,
        name=name,
    )
    try:
        yield program
    finally:
        await program.end()


@asynccontextmanager
async def running_daemon(
    cluster: Access,
    folder: Path,
    node: str,
    runtime: ScriptedRuntime,
    *flags: str,
) -> AsyncIterator[Program]:
    """A daemon of `node` with this container runtime."""
    async with served(runtime) as endpoint:
        wanted = (f"--node-name={node}", f"--cri-endpoint={endpoint}", *flags)
        async with running(
            "daemon",
            cluster,
            folder,
            *wanted,
        ) as program:
            yield program


ALONE = "--enable-leader-election=false"
