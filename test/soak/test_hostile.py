"""Attackers of every kind in three namespaces of a real node, and tenants on hollow nodes, beside well-behaved pods.

The pods' state flips with the machine's uptime, every `WINDOW_SECONDS`. So the time of each flip is known to some
milliseconds, and the delay of its label is measured from there.
"""

import asyncio
import json
import math
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
from soak.attackers import (
    Object,
    attacker_pod,
    ballast_pod,
    flapping_pod,
    hold_connections,
    holding_pod,
    markers,
    markers_of_rows,
    pipeline_metrics,
    sent_data,
    shouting_pod,
)
from soak.conftest import Limits
from soak.forms import forms
from soak.tenants import tenants
from support import hollow, programs
from support.background import background
from support.kubectl import Kubectl
from support.output import print_line
from support.programs import Program
from support.real_node import busybox_pod
from support.wire import typed

from kruise_probe.api.names import EVENT_FAILED, EVENT_SUCCEEDED
from kruise_probe.api.pods import Pod
from kruise_probe.api.resources import PODS
from kruise_probe.api.times import utc_now
from kruise_probe.client.config import load_config
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.informers.shared_informer import SharedInformer

SYSTEM = "kruise-system"
WINDOW_SECONDS = 20
PERIODS = {"exec": 5, "http": 1}
"""Of the victims' probes, in seconds."""
LABEL = "victim.example.com/"
SLOW_STEP = re.compile(r"slow step.*cpu_seconds\W+([\d.]+)")
MAX_DAEMON_MB, MAX_MANAGER_MB = 128, 256
APPLY_SECONDS = 400.0
"""Attacks that have begun slow down the API server."""
ATTACK_SECONDS = 5.0
"""What an attack may add to the longest age of a Lease that was seen without it."""

FLIP = f"""
mkdir -p /tmp/www; cd /tmp/www; httpd -p 8080
while :; do
  read now idle < /proc/uptime
  now=${{now%.*}}${{now#*.}}  # in hundredths of a second
  if [ $((now / {WINDOW_SECONDS}00 % 2)) = 0 ]; then echo up > ok; else rm -f ok; fi
  usleep $((({WINDOW_SECONDS}00 - now % {WINDOW_SECONDS}00) * 10000))
done
"""


def uptime_seconds() -> float:
    """The clock of /proc/uptime."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Namespaces:
    """Four namespaces on the real cluster; the first is the victims'. `run` is the begin of their names."""

    def __init__(self, kubeconfig: str) -> None:
        self.run = f"hostile-{secrets.token_hex(3)}"
        self.kubeconfig = kubeconfig
        self.names = [f"{self.run}-{each}" for each in ("victims", "a", "b", "c")]
        self.victims, *self.attackers = (Kubectl(kubeconfig, namespace=each) for each in self.names)


@pytest.fixture
def cluster() -> Iterator[Namespaces]:
    kubeconfig = os.environ.get("KUBECONFIG")
    if not kubeconfig or not os.environ.get("KRUISE_PROBE_CRI_ENDPOINT"):
        pytest.skip('needs a node: eval "$(hack/cluster env)"')
    cluster = Namespaces(kubeconfig)
    kubectl = Kubectl(kubeconfig)
    kubectl.install_crds()
    kubectl.apply(*(typed("Namespace", metadata={"name": n}) for n in (SYSTEM, *cluster.names)))
    yield cluster
    for each in (cluster.victims, *cluster.attackers):
        # No manager is left that would remove the finalizers.
        for one in each.items("podprobemarkers"):
            free = ("--type=merge", '--patch={"metadata":{"finalizers":null}}')
            each.run("patch", "podprobemarker", one["metadata"]["name"], *free)
    kubectl.run("delete", "namespace", *cluster.names, "--timeout=180s", timeout=190)


def victim(number: int) -> Object:
    return busybox_pod(f"victim-{number}", "sh", "-c", FLIP, labels={"app": "victim"})


def victims_marker() -> Object:
    handlers: dict[str, Object] = {
        "exec": {"exec": {"command": ["test", "-f", "/tmp/www/ok"]}},
        "http": {"httpGet": {"port": 8080, "path": "/ok"}},
    }
    probes = [
        hollow.probe(
            name,
            probe={**handler, "periodSeconds": PERIODS[name], "timeoutSeconds": 5},
            podConditionType=None,
            markerPolicy=[
                {"state": state, "labels": {f"{LABEL}{name}": value}}
                for state, value in (("Succeeded", "up"), ("Failed", "down"))
            ],
        )
        for name, handler in handlers.items()
    ]
    return hollow.marker_object(*probes, name="victims", app="victim")


class Flips:
    """When each victim's label showed the state of its window: an event handler of an informer.

    Attributes:
        seen: by (pod, probe, window) the seconds from the window's start until the label was right.
    """

    def __init__(self, namespace: str) -> None:
        self.seen: dict[tuple[str, str, int], float] = {}
        self._namespace = namespace

    def on_add(self, obj: Pod, is_initial: bool) -> None:
        self._note(obj)

    def on_update(self, old: Pod, new: Pod) -> None:
        self._note(new)

    def on_delete(self, last_known: Pod) -> None:
        """A victim that was deleted misses its windows."""

    def _note(self, pod: Pod) -> None:
        if pod.namespace != self._namespace:
            return
        now = uptime_seconds()
        window = int(now // WINDOW_SECONDS)
        wanted = "up" if window % 2 == 0 else "down"
        for probe in PERIODS:
            if pod.labels.get(f"{LABEL}{probe}") == wanted:
                key = (pod.name, probe, window)
                self.seen.setdefault(key, now - window * WINDOW_SECONDS)

    def delays(self, probe: str, pods: int, windows: range) -> list[float]:
        """One for each pod and window, sorted; infinite where the label was never right."""
        return sorted(
            self.seen.get((f"victim-{number}", probe, window), math.inf)
            for number in range(pods)
            for window in windows
        )


class Health:
    """Polls /healthz of both programs, and the Leases."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, int]] = []
        self.longest: dict[str, float] = {}

    async def watch(self, programs: list[Program], leases: Kubectl) -> None:
        while True:
            for each in programs:
                self.answers.append((each.name, (await each.get("healthz"))[0]))
            for lease in await asyncio.to_thread(leases.items, "leases"):
                name = lease["metadata"]["name"]
                if name.startswith("kruise-probe"):
                    renewed = datetime.fromisoformat(lease["spec"]["renewTime"])
                    age = (utc_now() - renewed).total_seconds()
                    self.longest[name] = max(self.longest.get(name, 0.0), age)
            await asyncio.sleep(1.0)


def port_of(program: Program) -> int:
    return int(program.address("/healthz").rpartition(":")[2])


@asynccontextmanager
async def strangers(*ports: int, count: int) -> AsyncIterator[None]:
    """Connections from outside to every port that the programs listen on."""
    async with AsyncExitStack() as stack:
        for port in ports:
            _ = await stack.enter_async_context(background(hold_connections(port, count=count)))
            _ = await stack.enter_async_context(
                background(pipeline_metrics(port, count=count // 4))
            )
        yield


@forms(short="5-victims-a-minute", long="30-victims-10-minutes")
async def test_victims_keep_their_probes_beside_attackers_of_every_kind(
    cluster: Namespaces, short: bool, limits: Limits, tmp_path: Path
) -> None:
    pods, seconds, crowd, ballast, share = (5, 60, 70, 1, 0.05) if short else (30, 600, 130, 8, 1.0)
    cluster.victims.apply(*(victim(number) for number in range(pods)))
    ready = ("wait", "--for=condition=Ready", "pod", "--timeout=300s")
    for each in cluster.attackers:
        each.apply(attacker_pod(), *(ballast_pod(number) for number in range(ballast)))
    greedy = cluster.attackers[0]
    # `apply` would keep a copy in an annotation, which has a limit.
    greedy.run("create", "-f", "-", stdin=json.dumps(sent_data()))
    greedy.apply(*pods_of_rows(1 if short else 10))
    await asyncio.to_thread(cluster.victims.run, *ready, "--all", timeout=310)
    for each in cluster.attackers:
        await asyncio.to_thread(each.run, *ready, "-l", "!ballast", timeout=310)
    config = load_config(cluster.kubeconfig)
    node = cluster.victims.items("nodes")[0]["metadata"]["name"]
    flags = (f"--node-name={node}", f"--cri-endpoint={os.environ['KRUISE_PROBE_CRI_ENDPOINT']}")
    kubeconfig = Path(cluster.kubeconfig)
    flips, health, calm_health = Flips(cluster.names[0]), Health(), Health()
    client = RestClient(config=config, field_manager="soak", user_agent="soak")
    # Small objects, and no history of them: a collection of large garbage would delay what is measured here.
    victims = ResourceListerWatcher(client, PODS, cluster.names[0])
    informer = SharedInformer(victims, name="pods")
    informer.add_event_handler(flips)
    async with (
        client,
        tenants(cluster.kubeconfig, cluster.run, share) as others,
        background(informer.run()),
        programs.running("manager", kubeconfig, tmp_path) as manager,
        programs.running("daemon", kubeconfig, tmp_path, *flags) as daemon,
    ):
        await manager.ready(seconds=60)
        await daemon.ready(seconds=60)
        cluster.victims.apply(victims_marker())

        async def all_labelled() -> bool:
            shown = [each for each in informer.lister.list() if f"{LABEL}exec" in each.labels]
            return len(shown) == pods

        await daemon.until("every victim has its label", all_labelled, seconds=120)
        both = [manager, daemon]
        system = Kubectl(cluster.kubeconfig, namespace=SYSTEM)
        async with background(calm_health.watch(both, system)):
            calm = await measured_windows(WINDOW_SECONDS)
        async with (
            background(health.watch(both, system)),
            strangers(port_of(manager), port_of(daemon), count=256),
        ):
            await others.attack()
            async with asyncio.TaskGroup() as group:
                for each in cluster.attackers:
                    made = [*markers(crowd=crowd)]
                    if each is greedy:
                        made += markers_of_rows()
                    group.create_task(asyncio.to_thread(each.apply, *made, timeout=APPLY_SECONDS))
            windows = await measured_windows(seconds)
        changes = await others.end()
        for process in both:
            assert process.running, process.tail()
        failed = [each for each in health.answers if each[1] != 200]
        print_line(f"/healthz: {len(health.answers)} polls, {len(failed)} without 200")
        print_line(f"longest age of each Lease in seconds: {health.longest}")
        print_line(f"peak memory in MB: manager {manager.peak_mb:.0f}, daemon {daemon.peak_mb:.0f}")
        print_line(f"how often each tenant repeated its attack: {changes}")
        await print_steps(manager, limits)
        await daemon.until(
            "every change of state has its event", partial(has_all_events, cluster.victims, flips)
        )
        assert all(changes.values()), "each attack is repeated"
        for each in cluster.attackers:
            assert not restarts(each), "their servers run"
        assert daemon.peak_mb <= MAX_DAEMON_MB
        assert manager.peak_mb <= MAX_MANAGER_MB
        check_flips(flips, pods, calm, windows, limits)
        limits.check("/healthz always returns 200", bool(health.answers) and not failed)
        assert health.longest.keys() == calm_health.longest.keys()
        for name, age in health.longest.items():
            limit = calm_health.longest[name] + ATTACK_SECONDS
            limits.check(f"Lease {name} is renewed within {limit:.1f} s", age <= limit)


def pods_of_rows(count: int) -> Iterator[Object]:
    for number in range(count):
        yield shouting_pod(number)
        yield holding_pod(number)
    for number in range(max(count // 2, 1)):
        yield flapping_pod(number)


def restarts(kubectl: Kubectl) -> int:
    """Of the attackers' containers."""
    pods = kubectl.items("pods", "-l", "!ballast")
    return sum(pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods)


async def print_steps(manager: Program, limits: Limits) -> None:
    slow = await manager.metric("kruise_probe_slow_steps_total")
    longest = max([0.0, *map(float, SLOW_STEP.findall(manager.log.read_text(errors="replace")))])
    print_line(f"{slow:.0f} steps of the manager over 50 ms, the longest {longest:.3f} s")
    limits.check("no step of the manager takes 50 ms", not slow)


async def has_all_events(victims: Kubectl, flips: Flips) -> bool:
    """Whether the events of each victim count all of its changes of state that were seen."""
    counted: Counter[tuple[str, str]] = Counter()
    for event in await asyncio.to_thread(victims.items, "events"):
        if event["reason"] in (EVENT_SUCCEEDED, EVENT_FAILED):
            probe = event["message"].partition(":")[0].rpartition("#")[2]
            counted[event["involvedObject"]["name"], probe] += event["count"]
    seen = Counter((pod, probe) for pod, probe, _ in flips.seen)
    return all(counted[each] >= number for each, number in seen.items())


async def measured_windows(seconds: int) -> range:
    """Waits for the next whole windows of `seconds` together."""
    first = int(uptime_seconds() // WINDOW_SECONDS) + 1
    windows = range(first, first + max(seconds // WINDOW_SECONDS, 1))
    await asyncio.sleep(windows.stop * WINDOW_SECONDS - uptime_seconds())
    return windows


def percentile(delays: list[float], share: float) -> float:
    return delays[min(int(len(delays) * share), len(delays) - 1)]


def check_flips(flips: Flips, pods: int, calm: range, windows: range, limits: Limits) -> None:
    """Flips are seen before the next one. The short form needs only some, as the machine has other work then."""
    for probe, period in PERIODS.items():
        delays = flips.delays(probe, pods, windows)
        control, late = percentile(flips.delays(probe, pods, calm), 0.99), percentile(delays, 0.99)
        print_line(
            f"{probe} of {period} s: {len(delays)} flips, median {percentile(delays, 0.5):.2f} s, p99 {late:.2f} s, "
            f"without an attack {control:.2f} s, {sum(map(math.isinf, delays))} missed"
        )
        assert min(delays) <= WINDOW_SECONDS
        limits.check(f"{probe}: 99 % of flips are seen before the next one", late <= WINDOW_SECONDS)
        limits.check(f"{probe}: an attack delays 99 % of flips by 1 s", late <= control + 1.0)
