"""Commands that hang hold the places of their own pod and namespace, and no others."""

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

from support.hollow import probe
from support.patience import PATIENCE_SECONDS
from support.playground import ControlledPlayground, PlaygroundNamespace, new_namespace
from support.shell import run
from support.target import condition
from support.wire import Json

KIND = "example.com/checked"
LONG_SECONDS = 3600


def running(command: list[str], name: str, *, timeout: int) -> Json:
    """A probe that runs a command each second."""
    how = {"exec": {"command": command}, "periodSeconds": 1, "timeoutSeconds": timeout}
    return probe(name, probe=how, podConditionType=f"example.com/{name}", markerPolicy=None)


def hanging(count: int, *, timeout: int) -> list[Json]:
    """Probes whose commands hang; each is another one, so that none are shared."""
    return [
        running(
            ["sleep", f"100000.{timeout}{number:02}"], f"hang-{timeout}-{number}", timeout=timeout
        )
        for number in range(count)
    ]


async def victims(ns: PlaygroundNamespace, count: int) -> list[str]:
    names = [f"good-{number}" for number in range(count)]
    async with asyncio.TaskGroup() as group:
        for name in names:
            _ = group.create_task(ns.pod(name))
    await ns.marker(running(["test", "-e", "good"], "checked", timeout=10))
    return names


async def flip_all(ns: PlaygroundNamespace, names: list[str], *, good: bool) -> None:
    """Changes what each victim's probe finds, and waits until each condition says so: on the old code, for an hour."""
    for name in names:
        file = ns.folder(name) / "good"
        file.touch() if good else file.unlink()
    wanted = "True" if good else "False"
    async with asyncio.timeout(PATIENCE_SECONDS):
        for name in names:
            await ns.until(
                f"is {wanted}",
                lambda pod: condition(pod, KIND).get("status") == wanted,
                name,
            )


async def shown(ns: PlaygroundNamespace, command: str) -> Any:
    ran = await run(
        f"kruise-probe {command} -n {ns.namespace} -o json",
        kubeconfig=ns.playground.kubeconfig,
        folder=ns.playground.folder,
    )
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


async def test_e3_a_pod_whose_commands_hang_delays_no_other_namespace_and_is_reported(
    playground: ControlledPlayground, ns: PlaygroundNamespace
) -> None:
    async with new_namespace(playground) as hostile:
        await hostile.pod()
        await hostile.marker(*hanging(20, timeout=LONG_SECONDS))
        await asyncio.sleep(5)
        names = await victims(ns, 5)
        for _ in range(2):
            await flip_all(ns, names, good=True)
            await flip_all(ns, names, good=False)

        def queued(pod: Json) -> list[Json]:
            return [
                each
                for each in pod["status"].get("conditions") or ()
                if (each.get("message") or "").startswith("ExecQueued: ")
            ]

        pod = await playground.api.pods.until(
            "has probes that are queued",
            lambda pod: len(queued(pod)) >= 15,
            name="web",
            namespace=hostile.namespace,
            seconds=60,
        )
        assert {each["status"] for each in queued(pod)} == {"Unknown"}
        assert not any(ns.namespace in each["message"] for each in queued(pod))

        view = await shown(hostile, "status marker")
        problems = [
            each for each in view["markers"][0]["problems"] if each["reason"] == "ExecQueued"
        ]
        assert len(problems) >= 15
        assert {(each["pod"], each["severity"]) for each in problems} == {("web", "broken")}
        assert all(each["remedy"] for each in problems)
        assert '"ExecQueued"' in json.dumps(await shown(hostile, "explain web"))
        assert not (await shown(ns, "status marker"))["markers"][0]["problems"]


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
        for _ in range(3):
            await flip_all(ns, names, good=True)
            await flip_all(ns, names, good=False)
