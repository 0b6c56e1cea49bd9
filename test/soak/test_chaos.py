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
    WatchedKind,
    annotations,
    labels,
    node_pod_probe_path,
    pod_path,
    results_of,
    status_of,
)
from support.wire import Json

from kruise_probe.api.errors import KubeError

RENAMED = "example.com/renamed"
SECOND = "example.com/second"
CONVERGED_SECONDS = 120.0
LOOK_SECONDS = 5.0
"""Longer than initial keys are spread over, and than a marker's status is delayed."""


class Scale(NamedTuple):
    nodes: int
    pods: int
    seconds: float
    calm_seconds: tuple[float, float]


SHORT = Scale(
    nodes=20,
    pods=60,
    seconds=1,
    calm_seconds=(0.2, 0.6),
)
LONG = Scale(
    nodes=200,
    pods=1_000,
    seconds=600,
    calm_seconds=(2, 20),
)


class Chaos:
    """Users, daemons and faults, each with random numbers of their own."""

    manager: Program

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
        stage.daemons.result_of = self.result_of

    def result_of(self, pod: str, name: str) -> tuple[str, str]:
        random = Random(f"{self.seed} {pod} {name} {self.epoch}")
        if random.random() < 0.7:
            return "Succeeded", "fine"
        return "Failed", f"epoch {self.epoch}"

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
        hollow = self.stage.hollow
        api = self.stage.api
        number = random.randrange(self.scale.pods)
        path = pod_path(pod_name(number), hollow.namespace)
        match random.randrange(13):
            case 0 | 1:
                await hollow.remove_pod(pod_name(number))
            case 2 | 3 | 4:
                node = node_name(random.randrange(self.scale.nodes))
                labels = {"app": random.choice(["web", "db"]), "tier": random.choice("xy")}
                await hollow.add_pod(number, node=node, labels=labels)
            case 5 | 6 | 7:
                app = random.choice(["web", "web", "db", None])
                await api.merge(path, {"metadata": {"labels": {"app": app}}})
            case 8:
                self.epoch += 1
            case 9:
                await self.edit_marker(random)
            case 10:
                report = node_pod_probe_path(node_name(random.randrange(self.scale.nodes)))
                await api.merge(report, {"spec": {"podProbes": None}})
            case 11:  # no kubelet runs, so the pod stays terminating
                await api.delete(path, grace_seconds=30)
            case _:
                metadata = {
                    "labels": {LABEL: "meddled"},
                    "annotations": {"other": str(self.edits)},
                }
                await api.merge(path, {"metadata": metadata})

    async def edit_marker(self, random: Random) -> None:
        """The second marker comes and goes; the first has another condition every now and then."""
        hollow = self.stage.hollow
        match random.randrange(3):
            case 0:
                kind = random.choice([CONDITION, RENAMED])
                await hollow.edit_marker(probe("first", podConditionType=kind), name="alpha")
            case 1:
                second = probe("second", podConditionType=SECOND)
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

    def assert_manager_runs(self) -> None:
        assert self.manager.running, f"it ended by itself: {self.manager.tail()}"

    async def kill_manager(self) -> None:
        self.assert_manager_runs()
        await self.manager.kill()
        await self.start_manager()

    async def pause_manager(self) -> None:
        self.manager.send(signal.SIGSTOP)
        await asyncio.sleep(2.0)
        self.manager.send(signal.SIGCONT)

    def differs(self) -> Json:
        """Up to five differences from the state computed from the users' writes and the daemons' results."""
        reports = by_name(self.api.node_pod_probes)
        markers = by_name(self.api.markers)
        wrong: Json = {}
        if len(reports) != self.scale.nodes:
            wrong["reports"] = len(reports)
        entries: dict[str, dict[str, list[str]]] = {name: {} for name in reports}
        for pod in self.api.pods.all():
            node = pod["spec"]["nodeName"]
            probes = probes_of(pod, markers)
            if probes:
                entries.setdefault(node, {})[pod["metadata"]["uid"]] = list(probes)
            published = results_of_pod(pod, reports.get(node, {}))
            marks = marks_of(pod)
            expected = expected_marks(pod, probes, published)
            if marks != expected and not terminating(pod):
                wrong[pod["metadata"]["name"]] = {
                    "is": marks,
                    "should be": expected,
                    "published": published,
                }
        for name, report in reports.items():
            listed = {
                entry["uid"]: [probe["name"] for probe in entry["probes"]]
                for entry in report["spec"].get("podProbes") or ()
            }
            if listed != entries[name]:
                wrong[name] = {"is": listed, "should be": entries[name]}
        return dict(list(wrong.items())[:5])


def by_name(kind: WatchedKind) -> dict[str, Json]:
    return {found["metadata"]["name"]: found for found in kind.all()}


def probes_of(pod: Json, markers: dict[str, Json]) -> dict[str, str]:
    """The condition of each of the pod's probes; none without a status, and none while the pod is terminating.

    A kill of the API server between the two requests of `add_pod` leaves a pod without a status. A kill of etcd
    during a removal leaves a terminating pod: kube-apiserver first sets deletionTimestamp, then deletes the pod.
    """
    found: dict[str, str] = {}
    if status_of(pod, "Initialized") != "True" or terminating(pod):
        return found
    for name, marker in sorted(markers.items()):
        spec = marker["spec"]
        if spec["selector"]["matchLabels"].items() <= labels(pod).items():
            for listed in spec["probes"]:
                found[f"{name}#{listed['name']}"] = listed["podConditionType"]
    return found


def results_of_pod(pod: Json, report: Json) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for (uid, name), result in results_of(report).items():
        if uid == pod["metadata"]["uid"]:
            found[name] = result
    return found


def marks_of(pod: Json) -> Json:
    marks: Json = {"label": labels(pod).get(LABEL), "cost": annotations(pod).get(ANNOTATION)}
    for kind in (CONDITION, RENAMED, SECOND):
        marks[kind] = status_of(pod, kind)
    return marks


def expected_marks(
    pod: Json, probes: dict[str, str], published: dict[str, tuple[str, str]]
) -> Json:
    marks: Json = dict.fromkeys(marks_of(pod))
    for name, kind in probes.items():
        state, _ = published.get(name, ("nothing", ""))
        if state == "Succeeded":
            marks |= {kind: "True", "label": "good", "cost": "-1"}
        else:
            marks |= {kind: "False", "label": "bad", "cost": "1"}
    if not probes and labels(pod).get(LABEL) == "meddled":
        marks["label"] = "meddled"
    return marks


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
            f"{request.method} {request.path}"
            for request in proxy.log
            if request.writes and request.resource != "events"
        ]


@forms(short="60-pods-a-second-of-faults", long="1000-pods-10-minutes-of-faults")
async def test_chaos(
    control_plane: ControlPlane, random: Random, short: bool, tmp_path: Path
) -> None:
    scale = SHORT if short else LONG
    seed = random.randrange(2**32)
    nodes = list(map(node_name, range(scale.nodes)))
    async with staged(control_plane, "chaos") as stage:
        chaos = Chaos(control_plane, stage, scale, seed, tmp_path)
        await stage.hollow.add_nodes(scale.nodes)
        client = stage.api.client
        heartbeats = Heartbeats(client, nodes)
        await stage.hollow.add_marker(probe("first"), name="alpha")
        await stage.hollow.add_pods(scale.pods, nodes=scale.nodes)
        await chaos.start_manager()
        try:
            async with background(heartbeats.run()), nothing_is_stale(client, "chaos"):
                await until_over(chaos)
                faults = ", ".join(chaos.faults[:60])
                print_line(f"{chaos.edits} edits; {len(chaos.faults)} faults: {faults}")
                chaos.assert_manager_runs()
                await converged(chaos)
        except (AssertionError, ExceptionGroup) as error:
            error.add_note(f"the end of the manager's log:\n{chaos.manager.tail()}")
            raise
        finally:
            await chaos.manager.end()


async def until_over(chaos: Chaos) -> None:
    async with asyncio.TaskGroup() as group:
        users = group.create_task(chaos.users(Random(f"{chaos.seed} users")))
        daemons = group.create_task(chaos.stage.daemons.follow())
        await chaos.inject_faults(Random(f"{chaos.seed} inject_faults"))
        users.cancel()
        daemons.cancel()


async def converged(chaos: Chaos) -> None:
    """Read with new watches, as the old ones may not have come back yet."""
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
    chaos.assert_manager_runs()
    left: list[str] = []
    for _ in range(3):
        left = await pending_writes(chaos)
        if not left:
            return
    raise AssertionError(f"a new manager still writes: {left[:5]}")
