"""Commands that hang hold the places of their own pod and namespace, and no others."""

import asyncio
import json
from contextlib import AsyncExitStack

from support.hollow import probe
from support.patience import PATIENCE_SECONDS
from support.playground import ControlledPlayground, PlaygroundNamespace, new_namespace
from support.shell import run
from support.target import status_of
from support.wire import Json

KIND = "example.com/checked"
LONG_SECONDS = 3600


def running(command: list[str], name: str, *, timeout: int) -> Json:
    """A probe that runs a command each second."""
    return probe(
        name,
        probe={
            "exec": {"command": command},
            "periodSeconds": 1,
            "timeoutSeconds": timeout,
        },
        podConditionType=f"example.com/{name}",
        markerPolicy=None,
    )


def hanging(count: int, *, timeout: int) -> list[Json]:
    """Probes whose commands hang. All commands differ, so that none are shared."""
    probes: list[Json] = []
    for number in range(count):
        command = ["sleep", f"100000.{timeout}{number:02}"]
        probes.append(running(command, f"hang-{timeout}-{number}", timeout=timeout))
    return probes


def queued(pod: Json) -> list[Json]:
    """The conditions that say that a probe waits for a place."""
    found: list[Json] = []
    for condition in pod["status"].get("conditions") or ():
        message = condition.get("message") or ""
        if message.startswith("ExecQueued: "):
            found.append(condition)
    return found


async def victims(ns: PlaygroundNamespace, count: int) -> list[str]:
    names = [f"good-{number}" for number in range(count)]
    async with asyncio.TaskGroup() as group:
        for name in names:
            _ = group.create_task(ns.pod(name))
    await ns.marker(running(["test", "-e", "good"], "checked", timeout=10))
    return names


async def flip_all(ns: PlaygroundNamespace, names: list[str], *, times: int) -> None:
    """Changes what each victim's probe finds, twice each time, and waits until each condition has changed."""
    for wanted in ["True", "False"] * times:
        for name in names:
            file = ns.folder(name) / "good"
            file.touch() if wanted == "True" else file.unlink()
        async with asyncio.timeout(PATIENCE_SECONDS):
            for name in names:
                await ns.until(
                    f"is {wanted}",
                    lambda pod, status=wanted: status_of(pod, KIND) == status,
                    name,
                )


async def output_of(ns: PlaygroundNamespace, command: str) -> str:
    ran = await run(
        f"kruise-probe {command} -n {ns.namespace} -o json",
        kubeconfig=ns.playground.kubeconfig,
        folder=ns.playground.folder,
    )
    assert ran.code == 0, ran.err
    return ran.out


async def problems_of_marker(ns: PlaygroundNamespace) -> list[Json]:
    (marker,) = json.loads(await output_of(ns, "status marker"))["markers"]
    problems: list[Json] = marker["problems"]
    return problems


async def test_e3_a_pod_whose_commands_hang_delays_no_other_namespace_and_is_reported(
    playground: ControlledPlayground, ns: PlaygroundNamespace
) -> None:
    async with new_namespace(playground) as hostile:
        await hostile.pod()
        await hostile.marker(*hanging(20, timeout=LONG_SECONDS))
        await asyncio.sleep(5)
        names = await victims(ns, 5)
        await flip_all(ns, names, times=2)

        pod = await playground.api.pods.until(
            "has probes that are queued",
            lambda pod: len(queued(pod)) >= 15,
            name="web",
            namespace=hostile.namespace,
        )
        for condition in queued(pod):
            assert condition["status"] == "Unknown"
            assert ns.namespace not in condition["message"]

        problems = await problems_of_marker(hostile)
        of_queue = [problem for problem in problems if problem["reason"] == "ExecQueued"]
        assert len(of_queue) >= 15
        for problem in of_queue:
            assert problem["pod"] == "web"
            assert problem["severity"] == "broken"
            assert problem["remedy"]
        assert '"ExecQueued"' in await output_of(hostile, "explain web")
        assert await problems_of_marker(ns) == []


async def test_e3_hostile_namespaces_with_commands_of_every_timeout_delay_no_other(
    playground: ControlledPlayground, ns: PlaygroundNamespace
) -> None:
    async with AsyncExitStack() as stack:
        names = await victims(ns, 10)
        for _ in range(3):
            hostile = await stack.enter_async_context(new_namespace(playground))
            for pod in ("web", "other"):
                await hostile.pod(pod)
            for timeout in (1, 2, 10, LONG_SECONDS):
                await hostile.marker(*hanging(16, timeout=timeout), name=f"hang-{timeout}")
        await asyncio.sleep(15)
        await flip_all(ns, names, times=3)
