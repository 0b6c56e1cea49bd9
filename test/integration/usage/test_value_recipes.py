"""The recipes of values, by the daemon's probers, against the real programs or what they send.

test/data/recipes has responses as they came from Jupyter Server 2.21 and Spring Boot 3.5. The metrics are those of
prometheus_client, with which vLLM and most programs in Python write theirs; names and labels of vLLM are those of its source
(vllm/v1/metrics/loggers.py). Redis and PostgreSQL are Debian's; their tests are skipped without them.
"""

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from support.builders import marker_wire
from support.cases import cases
from support.pages import ROOT, block
from support.patience import PATIENCE_SECONDS
from support.scripted_server import answering, serving
from support.wire import Json

from kruise_probe.api.node_pod_probe import ContainerProbeState
from kruise_probe.api.resources import MARKERS
from kruise_probe.api.v1alpha1 import ContainerProbe, ProbeState
from kruise_probe.controllers.compiled import CompiledMarker, compile_marker
from kruise_probe.controllers.marking import values_of
from kruise_probe.daemon.cri.runtime import ExecResult
from kruise_probe.daemon.probers import prober_for
from kruise_probe.daemon.probers.prober import CouldNotProbe, Target

COST = "controller.kubernetes.io/pod-deletion-cost"
MODEL = "inference.example.com/model"
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DB = "db.example.com/role"
STORE = "store.example.com/role"
HEALTH = "shop.example.com/health"
BUSY = "jobs.example.com/busy"


def recipe(heading: str) -> CompiledMarker:
    (document,) = block("recipes.md", heading).documents
    wire = {**document, "metadata": marker_wire(document["metadata"]["name"])["metadata"]}
    compiled = compile_marker(MARKERS.decode(msgspec.json.encode(wire)))
    assert not compiled.errors
    return compiled


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


class LocalCommands:
    """Runs commands here, with these variables of the environment."""

    def __init__(self, **variables: str) -> None:
        self._variables = variables

    async def exec_sync(
        self, container_id: str, command: Sequence[str], *, timeout_seconds: float
    ) -> ExecResult:
        process = await asyncio.create_subprocess_exec(
            *command,
            env={**os.environ, **self._variables},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stdout, stderr = await process.communicate()
        return ExecResult(process.returncode or 0, stdout, stderr)


async def attempt(
    marker: CompiledMarker, *, port: int = 0, commands: LocalCommands | None = None
) -> tuple[str, Json]:
    """The message of one attempt of the marker's probe, and the marks that it has."""
    (probe,) = marker.probes
    entry = on_port(probe.container_probe, port)
    prober = prober_for(
        entry,
        commands=commands or LocalCommands(),
        user_agent="x",
    )
    try:
        result = await prober.run(Target("127.0.0.1", "c"))
    except CouldNotProbe as error:
        state, message = ProbeState.UNKNOWN, str(error)
    else:
        state = ProbeState.SUCCEEDED if result.succeeded else ProbeState.FAILED
        message = result.message
    wanted = probe.wanted().get(state, {})
    values = values_of(wanted, ContainerProbeState(probe.name, state, message=message))
    return message, {value.mark.name: value.value for value in values if value.value is not None}


def on_port(entry: ContainerProbe, port: int) -> ContainerProbe:
    action = entry.probe.http_get
    if action is None:
        return entry
    moved = replace(action, port=port)
    return replace(
        entry,
        probe=replace(entry.probe, http_get=moved, timeout_seconds=5),
    )


def response(status: int, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def metrics(name: str, value: float, **labels: str) -> bytes:
    """The response of a program with this gauge and a few others."""
    registry = CollectorRegistry()
    for other in ("vllm:num_requests_running", "vllm:kv_cache_usage_perc", "process_start_time"):
        Gauge(other, "Another.", registry=registry).set(1)
    gauge = Gauge(
        name,
        "The wanted one.",
        list(labels),
        registry=registry,
    )
    if labels:
        gauge = gauge.labels(**labels)
    gauge.set(value)
    return response(200, generate_latest(registry))


def models(*names: str) -> bytes:
    """The response of vLLM for /v1/models."""
    data: list[Json] = [
        {
            "id": name,
            "object": "model",
            "created": 1,
            "owned_by": "vllm",
            "root": name,
            "parent": None,
        }
        for name in names
    ]
    return response(
        200,
        msgspec.json.encode({"object": "list", "data": data}),
    )


def recorded(name: str) -> bytes:
    """A response that a program has sent."""
    return (ROOT / "test" / "data" / "recipes" / f"{name}.http").read_bytes()


QUEUE = "Inference: the queue as deletion cost"
LOADED = "Inference: the loaded model as label"
NOTEBOOKS = "Idle notebooks: no kernel runs"
JAVA = "Java: a health check that is 503 with a reason"
WORKERS = "Workers: drain a busy one"
WAITING = "vllm:num_requests_waiting"
LLAMA = {"model_name": "llama", "engine": "0"}
OOM = "HTTP probe failed with statuscode: 500: oom"
NO_TOKEN = 'HTTP probe failed with statuscode: 403: {"message": "Forbidden", "reason": null}'
NOT_FOUND = (
    "HTTP probe failed with statuscode: 404, not in statusCodes 200, 503: "
    '{"timestamp":"2026-11-29T00:51:24.738+00:00","status":404,"error":"Not Found","path":"/actuator/nothing"}'
)
OUT = "OUT_OF_SERVICE"


@cases(
    "heading sent message marks",
    empty_queue=(QUEUE, metrics(WAITING, 0, **LLAMA), "0", {COST: "0"}),
    queue=(QUEUE, metrics(WAITING, 13, **LLAMA), "10", {COST: "10"}),
    no_gauge=(QUEUE, metrics("x", 1), f"NoValue: no sample of {WAITING}", {COST: "1000"}),
    failing=(QUEUE, response(500, b"oom"), OOM, {COST: "1000"}),
    model=(LOADED, models("meta-llama/Llama-3-8B"), "meta-llama/Llama-3-8B", {MODEL: "Llama-3-8B"}),
    no_model=(LOADED, models(), "NoValue: .data[0].id: no 0", {}),
    idle=(NOTEBOOKS, recorded("jupyter-idle"), "0", {SAFE: "true"}),
    kernels=(NOTEBOOKS, recorded("jupyter-busy"), ".kernels 1 > max 0", {SAFE: "false"}),
    without_token=(NOTEBOOKS, recorded("jupyter-without-token"), NO_TOKEN, {SAFE: "false"}),
    up=(JAVA, recorded("actuator-up"), "UP", {HEALTH: "UP"}),
    out_of_service=(JAVA, recorded("actuator-out-of-service"), OUT, {HEALTH: OUT}),
    no_endpoint=(JAVA, recorded("actuator-not-found"), NOT_FOUND, {HEALTH: "NONE"}),
    busy=(WORKERS, metrics("jobs_in_progress", 4), "jobs_in_progress 4 > max 0", {BUSY: "true"}),
    drained=(WORKERS, metrics("jobs_in_progress", 0), "0", {BUSY: "false"}),
    without_jobs=(WORKERS, metrics("x", 1), "0", {BUSY: "false"}),
    empty_page=(WORKERS, response(200, b""), "NoValue: the text is empty", {}),
)
async def test_a_recipe_marks_the_pod_by_what_the_program_sends(
    heading: str, sent: bytes, message: str, marks: Json
) -> None:
    async with serving(answering(sent)) as server:
        assert await attempt(recipe(heading), port=server.port) == (message, marks)


@pytest.mark.parametrize("heading", [QUEUE, LOADED, NOTEBOOKS, JAVA, WORKERS])
async def test_a_recipe_without_its_program_is_failed(heading: str) -> None:
    message, marks = await attempt(recipe(heading), port=free_port())

    assert message.endswith("connection refused")
    assert marks


def test_a_marker_of_a_recipe_has_at_most_twenty_lines() -> None:
    for heading in (QUEUE, LOADED, NOTEBOOKS, JAVA, WORKERS, POSTGRES, REDIS):
        assert len(block("recipes.md", heading).text.splitlines()) <= 20, heading


POSTGRES = "Databases: ready, and which role"
REDIS = "Redis: the role as label"


@contextmanager
def process(*command: str, **options: Any) -> Iterator[None]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, **options) as running:
        try:
            yield
        finally:
            running.terminate()


def run_command(*command: str, **options: Any) -> None:
    subprocess.run(
        command,
        check=True,
        stdout=subprocess.DEVNULL,
        **options,
    )


async def eventually(marker: CompiledMarker, commands: LocalCommands, marks: Json) -> str:
    """The message with which the probe has these marks."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        message, found = await attempt(marker, commands=commands)
        if found == marks:
            return message
        assert time.monotonic() < deadline, (message, found)
        await asyncio.sleep(0.1)


async def test_the_role_of_redis_follows_replicaof(tmp_path: Path) -> None:
    if shutil.which("redis-server") is None:
        pytest.skip("no redis-server: apt-get install redis-server")
    port = str(free_port())
    commands = LocalCommands(REDISCLI_AUTH="")
    marker = at_port_of_redis(recipe(REDIS), port)
    message, marks = await attempt(marker, commands=commands)
    assert "Connection refused" in message
    assert marks == {STORE: "none"}
    address = ("--bind", "127.0.0.1", "--port", port)
    with process("redis-server", *address, "--save", "", "--dir", str(tmp_path)):
        assert await eventually(marker, commands, {STORE: "master"}) == "master"
        command = ("redis-cli", "-p", port, "replicaof", "127.0.0.1", "1")
        await asyncio.to_thread(run_command, *command)
        assert await eventually(marker, commands, {STORE: "slave"}) == "slave"


def at_port_of_redis(marker: CompiledMarker, port: str) -> CompiledMarker:
    """The recipe with `-p`, as a machine has other servers."""
    (probe,) = marker.probes
    entry = probe.container_probe
    action = entry.probe.exec
    assert action is not None
    program, *arguments = action.command
    moved = replace(action, command=(program, "-p", port, *arguments))
    entry = replace(entry, probe=replace(entry.probe, exec=moved))
    return replace(marker, probes=(probe._replace(container_probe=entry),))


@contextmanager
def folder_of(user: str) -> Iterator[Path]:
    """A folder that this user owns; those of pytest are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        if os.geteuid() == 0:
            shutil.chown(name, user)
        yield Path(name)


POSTGRES_PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


async def test_the_role_of_postgres_follows_recovery() -> None:
    if not POSTGRES_PROGRAMS:
        pytest.skip("no PostgreSQL: apt-get install postgresql")
    programs = POSTGRES_PROGRAMS[-1]
    port = str(free_port())
    commands = LocalCommands(
        PATH=f"{programs}:{os.environ['PATH']}",
        PGHOST="127.0.0.1",
        PGPORT=port,
        PGUSER="postgres",
        PGDATABASE="postgres",
    )
    marker = recipe(POSTGRES)
    assert await attempt(marker, commands=commands) == ("exit code 2", {DB: "replica"})
    # PostgreSQL does not run as root.
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        user = {"user": "postgres", "cwd": "/"}
    with folder_of("postgres") as folder:
        data = str(folder / "data")
        initdb = (f"{programs}/initdb", "-D", data, "-A", "trust", "-N", "-U", "postgres")
        await asyncio.to_thread(run_command, *initdb, **user)
        server = (f"{programs}/postgres", "-D", data, "-p", port, "-k", data)
        with process(*server, **user):
            assert await eventually(marker, commands, {DB: "primary"}) == "f"
        (folder / "data" / "standby.signal").touch()
        with process(*server, **user):
            message = ""
            while message != "no line matches regex '^f$'":  # it starts
                message = await eventually(marker, commands, {DB: "replica"})
                await asyncio.sleep(0.1)
