"""Random kills of a real API server, etcd and manager while objects change; the end state is computed from the objects.

Daemons are never killed, so no result is ever stale.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from soak.forms import forms
from soak.stale import Heartbeats, nothing_is_stale
from support import programs
from support.background import background
from support.control_plane import ControlPlane, staged
from support.hollow import (
    ANNOTATION,
    CONDITION,
    LABEL,
    Daemons,
    HollowCluster,
    node_name,
    pod_name,
    probe,
)
from support.output import print_line
from support.programs import ALONE, Program
from support.proxy import faulty_proxy
from support.target import (
    Target,
    annotations,
    condition,
    labels,
    node_pod_probe_path,
    pod_path,
    results_of,
)
from support.wire import Json

from kruise_probe.api.errors import KubeError

CONVERGED_SECONDS = 120.0
LOOK_SECONDS = 5.0
"""Longer than initial keys are spread over, and than a marker's status is delayed."""


class Scale(NamedTuple):
    nodes: int
    pods: int
    seconds: float
    calm_seconds: tuple[float, float]


SHORT = Scale(nodes=20, pods=60, seconds=1, calm_seconds=(0.2, 0.6))
LONG = Scale(nodes=200, pods=1_000, seconds=600, calm_seconds=(2, 20))


class Chaos:
    """Users, daemons and inject_faults, each with random numbers of their own."""

    def __init__(
        self, plane: ControlPlane, stage: HollowCluster, scale: Scale, seed: int, folder: Path
    ) -> None:
        self.plane = plane
        self.stage = stage
        self.api = stage.api
        self.scale = scale
        self.seed = seed
        self.folder = folder
        self.epoch = 0
        self.edits = 0
        self.faults: list[str] = []
        self.manager: Program | None = None
        stage.daemons.result_of = self.result_of

    def result_of(self, pod: str, name: str) -> tuple[str, str]:
        good = Random(f"{self.seed} {pod} {name} {self.epoch}").random() < 0.7
        return ("Succeeded", "fine") if good else ("Failed", f"epoch {self.epoch}")

    async def start_manager(self) -> None:
        self.manager = await programs.start(
            "manager", self.plane.kubeconfig, self.folder, ALONE, "--log-format=json"
        )

    async def users(self, random: Random) -> None:
        """Edits without end; those that the API server does not take are made again later or never."""
        while True:
            with suppress(KubeError):
                await self.edit(random)
                self.edits += 1
            await asyncio.sleep(random.uniform(0, 0.1))

    async def edit(self, random: Random) -> None:
        hollow, api, number = self.stage.hollow, self.stage.api, random.randrange(self.scale.pods)
        path = pod_path(pod_name(number), hollow.namespace)
        match random.randrange(13):
            case 0 | 1:
                await hollow.remove_pod(pod_name(number))
            case 2 | 3 | 4:
                node = node_name(random.randrange(self.scale.nodes))
                labels = {"app": random.choice(["web", "db"]), "tier": random.choice("xy")}
                await hollow.add_pod(number, node=node, labels=labels)
            case 5 | 6 | 7:
                change = {"app": random.choice(["web", "web", "db", None])}
                await api.merge(path, {"metadata": {"labels": change}})
            case 8:
                self.epoch += 1
            case 9:
                await self.edit_marker(random)
            case 10:
                name = node_name(random.randrange(self.scale.nodes))
                await api.merge(node_pod_probe_path(name), {"spec": {"podProbes": None}})
            case 11:  # no kubelet runs, so the pod stays terminating
                await api.delete(path, grace_seconds=30)
            case _:
                meddled = {"labels": {LABEL: "meddled"}, "annotations": {"other": str(self.edits)}}
                await api.merge(path, {"metadata": meddled})

    async def edit_marker(self, random: Random) -> None:
        """The second marker comes and goes; the first has another condition every now and then."""
        hollow = self.stage.hollow
        match random.randrange(3):
            case 0:
                kind = random.choice([CONDITION, "example.com/renamed"])
                await hollow.edit_marker(probe("first", podConditionType=kind), name="alpha")
            case 1:
                second = probe("second", podConditionType="example.com/second")
                await hollow.add_marker(second, name="beta", app="db")
            case _:
                await hollow.remove_marker("beta")

    async def inject_faults(self, random: Random) -> None:
        """One fault after the other until the time is over, each of them at least once."""
        faults: dict[str, Callable[[], Awaitable[None]]] = {
            "kill manager": self.kill_manager,
            "pause manager": self.pause_manager,
            "kill kube-apiserver": lambda: self.kill("kube-apiserver"),
            "kill etcd": lambda: self.kill("etcd"),
            "compact etcd": self.plane.compact,
        }
        loop = asyncio.get_running_loop()
        over_at = loop.time() + self.scale.seconds
        while loop.time() < over_at or len(self.faults) < len(faults):
            for name in random.sample(list(faults), len(faults)):
                await asyncio.sleep(random.uniform(*self.scale.calm_seconds))
                self.faults.append(name)
                await faults[name]()

    async def kill(self, component: str) -> None:
        await self.plane.kill(component)
        await self.plane.do("start", component)

    async def kill_manager(self) -> None:
        assert self.manager
        assert self.manager.running, f"it ended by itself: {self.manager.tail()}"
        await self.manager.kill()
        await self.start_manager()

    async def pause_manager(self) -> None:
        assert self.manager
        self.manager.send(signal.SIGSTOP)
        await asyncio.sleep(2.0)
        self.manager.send(signal.SIGCONT)

    # The end.

    def differs(self) -> Json:
        """What is not as the objects say: computed here, from what users wished and daemons told."""
        watched = self.api
        reports = {each["metadata"]["name"]: each for each in watched.node_pod_probes.all()}
        markers = {each["metadata"]["name"]: each for each in watched.markers.all()}
        wrong: Json = {}
        listed: dict[str, dict[str, list[str]]] = {}
        for pod in watched.pods.all():
            wanted = self.probes_of(pod, markers)
            listed.setdefault(pod["spec"]["nodeName"], {})[pod["metadata"]["uid"]] = wanted
            published = self.published(pod, reports)
            seen = self.seen(pod)
            expected = self.expected(pod, markers, published)
            if seen != expected and not terminating(pod) and len(wrong) < 5:
                wrong[pod["metadata"]["name"]] = {
                    "is": seen,
                    "should be": expected,
                    "published": published,
                }
        for name, report in reports.items():
            entries = report["spec"].get("podProbes") or ()
            found = {each["uid"]: [one["name"] for one in each["probes"]] for each in entries}
            should = {uid: names for uid, names in listed.get(name, {}).items() if names}
            if found != should and len(wrong) < 5:
                wrong[name] = {"is": found, "should be": should}
        if len(reports) != self.scale.nodes:
            wrong["reports"] = len(reports)
        return wrong

    def probes_of(self, pod: Json, markers: dict[str, Json]) -> list[str]:
        """Names of the pod's probes; none without a status, and none while the pod is terminating.

        A kill of the API server between the two requests of `add_pod` leaves a pod without a status. A kill of etcd
        during a removal leaves a terminating pod: kube-apiserver first sets deletionTimestamp, then deletes the pod.
        """
        if condition(pod, "Initialized").get("status") != "True" or terminating(pod):
            return []
        found = []
        for name, marker in sorted(markers.items()):
            if marker["spec"]["selector"]["matchLabels"].items() <= labels(pod).items():
                found += [f"{name}#{each['name']}" for each in marker["spec"]["probes"]]
        return found

    def published(self, pod: Json, reports: dict[str, Json]) -> dict[str, tuple[str, str]]:
        found = results_of(reports.get(pod["spec"]["nodeName"]) or {})
        return {
            name: result for (uid, name), result in found.items() if uid == pod["metadata"]["uid"]
        }

    def seen(self, pod: Json) -> Json:
        kinds = (CONDITION, "example.com/renamed", "example.com/second")
        return {
            "label": labels(pod).get(LABEL),
            "cost": annotations(pod).get(ANNOTATION),
            **{each: condition(pod, each).get("status") for each in kinds},
        }

    def expected(self, pod: Json, markers: dict[str, Json], published: Json) -> Json:
        should: Json = dict.fromkeys(self.seen(pod))
        for name in self.probes_of(pod, markers):
            marker, _, wanted = name.partition("#")
            one = next(each for each in markers[marker]["spec"]["probes"] if each["name"] == wanted)
            state = published.get(name, ("nothing", ""))[0]
            good = state == "Succeeded"
            should[one["podConditionType"]] = str(good)
            should |= {"label": "good" if good else "bad", "cost": "-1" if good else "1"}
        if should["label"] is None and labels(pod).get(LABEL) == "meddled":
            should["label"] = "meddled"
        return should


def terminating(pod: Json) -> bool:
    """Whether the pod is terminating. The manager then keeps its last marks, which depend on timing."""
    return "deletionTimestamp" in pod["metadata"]


async def pending_writes(chaos: Chaos) -> list[str]:
    """The writes that a new manager tries first; the proxy refuses all of them. Events do not count."""
    async with faulty_proxy(chaos.stage.upstream) as proxy:
        proxy.fail(503, when=lambda seen: seen.writes)
        kubeconfig = proxy.write_kubeconfig(chaos.folder, "new")
        async with programs.running("manager", kubeconfig, chaos.folder, ALONE, name="new") as new:
            await new.ready()
            await asyncio.sleep(LOOK_SECONDS)
        return [
            f"{each.method} {each.path}"
            for each in proxy.log
            if each.writes and each.resource != "events"
        ]


@forms(short="60-pods-a-second-of-faults", long="1000-pods-10-minutes-of-faults")
async def test_chaos(
    control_plane: ControlPlane, random: Random, short: bool, tmp_path: Path
) -> None:
    scale = SHORT if short else LONG
    seed = random.randrange(2**32)
    async with staged(control_plane, "chaos") as stage:
        chaos = Chaos(control_plane, stage, scale, seed, tmp_path)
        await stage.hollow.add_nodes(scale.nodes)
        client = stage.api.client
        heartbeats = Heartbeats(client, map(node_name, range(scale.nodes)))
        await stage.hollow.add_marker(probe("first"), name="alpha")
        await stage.hollow.add_pods(scale.pods, nodes=scale.nodes)
        await chaos.start_manager()
        try:
            async with background(heartbeats.run()), nothing_is_stale(client, "chaos"):
                await until_over(chaos, seed)
                print_line(
                    f"{chaos.edits} edits; {len(chaos.faults)} faults: {', '.join(chaos.faults[:60])}"
                )
                assert_not_ended_by_itself(chaos)
                await converged(chaos)
        except (AssertionError, ExceptionGroup) as error:
            assert chaos.manager
            error.add_note(f"the end of the manager's log:\n{chaos.manager.tail()}")
            raise
        finally:
            assert chaos.manager
            await chaos.manager.end()


async def until_over(chaos: Chaos, seed: int) -> None:
    async with asyncio.TaskGroup() as group:
        others = [
            group.create_task(chaos.users(Random(f"{seed} users"))),
            group.create_task(chaos.stage.daemons.follow()),
        ]
        await chaos.inject_faults(Random(f"{seed} inject_faults"))
        for each in others:
            each.cancel()


def assert_not_ended_by_itself(chaos: Chaos) -> None:
    assert chaos.manager
    assert chaos.manager.running, chaos.manager.tail()


async def converged(chaos: Chaos) -> None:
    """Looked at with fresh eyes: the watches of before may not have come back yet."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with Target(chaos.stage.api.client).watched() as target, asyncio.TaskGroup() as group:
        chaos.api = target
        daemons = Daemons(target, chaos.result_of)
        answering = group.create_task(daemons.follow())
        await target.wait_while(
            "all is as the objects say",
            lambda: chaos.differs() or daemons.behind(),
            seconds=CONVERGED_SECONDS,
        )
        answering.cancel()
    print_line(f"converged {loop.time() - began:.1f} s after the last fault")
    assert_not_ended_by_itself(chaos)
    left: list[str] = []
    for _ in range(3):
        left = await pending_writes(chaos)
        if not left:
            return
    raise AssertionError(f"a new manager still writes: {left[:5]}")
