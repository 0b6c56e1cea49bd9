"""What the daemon relies on in a container runtime."""

import asyncio
from datetime import timedelta
from ipaddress import ip_address
from typing import Protocol

import pytest
from support.background import background
from support.cases import cases
from support.patience import PATIENCE_SECONDS
from support.programs import until

from kruise_probe.api.times import utc_now
from kruise_probe.daemon.cri.containers import ContainerWatcher
from kruise_probe.daemon.cri.grpc_runtime import GrpcRuntime
from kruise_probe.daemon.cri.runtime import (
    ContainerNotFound,
    ContainerNotRunning,
    ContainerState,
    ExecImpossible,
    ExecResult,
    ExecTimeout,
)

UNKNOWN = "0" * 64
ENDLESS = "echo $$ >{0}; while :; do sleep 1; done"
"""Writes its process id into a file."""


class Subject(Protocol):
    """See conftest."""

    runtime: GrpcRuntime
    pod_uid: str

    async def container_id(self, name: str = "main") -> str: ...


async def run(subject: Subject, *command: str, timeout: float = PATIENCE_SECONDS) -> ExecResult:
    container_id = await subject.container_id()
    return await subject.runtime.exec_sync(container_id, command, timeout_seconds=timeout)


async def until_ended(subject: Subject) -> str:
    """Returns the id of the container that has ended."""
    container_id = await subject.container_id("ended")

    async def has_ended() -> bool:
        for container in await subject.runtime.list_containers():
            if container.id == container_id:
                return container.state is ContainerState.EXITED
        return False

    await until("the container has ended", has_ended)
    return container_id


async def until_gone(subject: Subject, file: str) -> None:
    async def is_gone() -> bool:
        return (await run(subject, "sh", "-c", f"kill -0 $(cat {file})")).exit_code != 0

    await until("the command is gone", is_gone)


async def test_version_names_the_runtime(subject: Subject) -> None:
    name, version = (await subject.runtime.version()).split(" ")

    assert name
    assert version


async def test_list_has_pod_and_name_of_each_container(subject: Subject) -> None:
    _ = await until_ended(subject)

    listed = await subject.runtime.list_containers()

    ours = {it.name: it for it in listed if it.pod_uid == subject.pod_uid}
    assert {name: it.state for name, it in ours.items()} == {
        "main": ContainerState.RUNNING,
        "ended": ContainerState.EXITED,
    }
    main = ours["main"]
    assert main.attempt == 0
    assert main.sandbox_id == ours["ended"].sandbox_id
    age = utc_now().timestamp() - main.created_at_ns / 1e9
    assert 0 <= age < 3600


async def test_status_has_the_start_time(subject: Subject) -> None:
    for container_id in (await subject.container_id(), await until_ended(subject)):
        started_at = (await subject.runtime.container_status(container_id)).started_at

        assert started_at is not None
        assert timedelta() <= utc_now() - started_at < timedelta(hours=1)


async def test_sandbox_status_has_the_pods_address(subject: Subject) -> None:
    listed = await subject.runtime.list_containers()
    sandbox_id = next(it.sandbox_id for it in listed if it.pod_uid == subject.pod_uid)

    sandbox = await subject.runtime.sandbox_status(sandbox_id)

    ip_address(sandbox.ips[0])  # raises ValueError if it is none
    assert not sandbox.host_network


async def test_unknown_ids_are_not_found(subject: Subject) -> None:
    with pytest.raises(ContainerNotFound):
        await subject.runtime.container_status(UNKNOWN)
    with pytest.raises(ContainerNotFound):
        await subject.runtime.sandbox_status(UNKNOWN)
    with pytest.raises(ContainerNotFound):
        await subject.runtime.exec_sync(UNKNOWN, ["true"], timeout_seconds=PATIENCE_SECONDS)


@cases(
    "script result",
    nothing_printed=("true", ExecResult(0, b"", b"")),
    two_outputs=("echo out; echo err >&2", ExecResult(0, b"out\n", b"err\n")),
    exit_code=("echo full; exit 3", ExecResult(3, b"full\n", b"")),
    killed=("kill -9 $$", ExecResult(137, b"", b"")),
    binary=(r"printf '\377\000\n'", ExecResult(0, b"\xff\x00\n", b"")),
    input_is_empty=("cat", ExecResult(0, b"", b"")),
)
async def test_exec_gives_code_and_outputs(
    subject: Subject, script: str, result: ExecResult
) -> None:
    assert await run(subject, "sh", "-c", script) == result


async def test_exec_returns_all_of_a_large_output(subject: Subject) -> None:
    script = (
        "i=0; while [ $i -lt 5000 ]; do echo 0123456789abcdef0123456789abcdef; i=$((i+1)); done"
    )

    result = await run(subject, "sh", "-c", script)

    assert result.exit_code == 0
    assert result.stdout == b"0123456789abcdef0123456789abcdef\n" * 5000


async def test_exec_ends_in_time_and_so_does_its_command(subject: Subject) -> None:
    script = ENDLESS.format("late")
    loop = asyncio.get_running_loop()
    started_at = loop.time()

    with pytest.raises(ExecTimeout, match="command timed out after 1s"):
        await run(subject, "sh", "-c", script, timeout=1)

    assert loop.time() - started_at >= 1
    await until_gone(subject, "late")


async def test_exec_does_not_wait_for_children_that_keep_its_output_open(subject: Subject) -> None:
    loop = asyncio.get_running_loop()
    started_at = loop.time()

    try:
        result = await run(subject, "sh", "-c", "sleep 100 & echo started", timeout=1)
    except ExecTimeout:
        pass
    else:
        assert result.exit_code == 0

    assert loop.time() - started_at < PATIENCE_SECONDS


@pytest.mark.parametrize("command", ["no-such-program", "/no/such/program", "/", "/dev/null"])
async def test_exec_of_what_is_no_program_is_impossible(subject: Subject, command: str) -> None:
    with pytest.raises(ExecImpossible):
        await run(subject, command)


async def test_exec_in_a_container_that_has_ended(subject: Subject) -> None:
    container_id = await until_ended(subject)

    with pytest.raises(ContainerNotRunning):
        await subject.runtime.exec_sync(container_id, ["true"], timeout_seconds=PATIENCE_SECONDS)


async def test_execs_run_side_by_side(subject: Subject) -> None:
    """A command ends only when all four have begun."""
    meeting = "touch here-$$; until [ $(ls here-* | wc -l) -ge 4 ]; do sleep 0.1; done"
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(subject, "sh", "-c", meeting)) for _ in range(4)]

    assert [task.result().exit_code for task in tasks] == [0, 0, 0, 0]


async def test_cancelled_exec_ends_its_command(subject: Subject) -> None:
    script = ENDLESS.format("begun")
    task = asyncio.create_task(run(subject, "sh", "-c", script))

    async def has_begun() -> bool:
        return (await run(subject, "test", "-s", "begun")).exit_code == 0

    await until("the command has begun", has_begun)
    task.cancel()
    _ = await asyncio.wait([task])

    await until_gone(subject, "begun")


async def test_the_watcher_knows_the_container_soon(subject: Subject) -> None:
    watcher = ContainerWatcher(subject.runtime)
    told = asyncio.Event()
    async with background(watcher.run()):
        _ = watcher.subscribe(subject.pod_uid, "main", told.set)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (view := watcher.find(subject.pod_uid, "main")):
                told.clear()
                await told.wait()

    assert view.id == await subject.container_id()
    assert view.state is ContainerState.RUNNING
    assert view.started_at is not None
    assert view.ips
