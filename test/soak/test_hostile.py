"""Attackers of every kind in three namespaces of a real node, and tenants on hollow nodes, beside well-behaved pods.

First all objects of the tenants are created, and the manager and the daemon, with the roles and the tokens of an installation, have
written everything. Then three namespaces of the real node attack, and delays are measured. Then the tenants attack too, and more pods of
the real node; see `tenants` for the load that they make.

The short form proves what holds on a machine of any speed: no program ends, each change of a victim has its label and its
event, and memory is bounded. The long form also checks delays while the real node's namespaces attack, so it needs a machine without
other work. While all attack, delays are printed only: the API server, the containers and the programs then share all of the machine's
processors, and each request waits for seconds.
"""

import asyncio
import json
import os
import re
import secrets
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from soak.attackers import (
    attacker_pod,
    ballast_pod,
    markers,
    markers_of_rows,
    pods_of_rows,
    sent_data,
    strangers,
)
from soak.conftest import Limits
from soak.forms import forms
from soak.stale import nothing_is_stale
from soak.tenants import tenants
from soak.victims import (
    PERIODS,
    WINDOW_SECONDS,
    LabelChanges,
    uptime_seconds,
    victim,
    victims_marker,
)
from support import programs
from support.background import background
from support.kubectl import Kubectl
from support.output import print_line
from support.programs import Program
from support.real_node import SYSTEM, install, kubeconfig_of
from support.wire import Json, typed

from kruise_probe.api.names import (
    EVENT_FAILED,
    EVENT_SUCCEEDED,
    LEADER_ELECTION_ID,
    daemon_lease_name,
)
from kruise_probe.api.resources import LEASES, PODS
from kruise_probe.api.times import utc_now
from kruise_probe.client.config import load_config
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.daemon.reporter import MAX_PAUSE_SECONDS
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.manifests.install import DAEMON, MANAGER

SLOW_STEP = re.compile(r"slow step.*cpu_seconds\W+([\d.]+)")
TIMED_OUT = re.compile(r"reconcile timed out.*controller=(\w+)")
MAX_DAEMON_MB = 128
MAX_MANAGER_MB = 256
STRANGERS = 256
REPORT_SECONDS = 30
PATIENCE_SECONDS = 900.0
"""As attacks slow down the API server, whatever speed the machine has. It only ends a test that would hang."""
LATE_SECONDS = MAX_PAUSE_SECONDS + 1.0
"""The node's NodePodProbe is full, so a change of state may have to wait until the daemon has rested."""
MANAGER_LEASE_SECONDS = 10.0
"""Its deadline of a renewal."""
DAEMON_LEASE_SECONDS = 45.0
"""It renews after 40 s at the latest."""


class Size(NamedTuple):
    """Of one form.

    Attributes:
        victims, rows, crowd, ballast: numbers of pods and markers.
        share: of the tenants' objects.
        seconds: how long delays are measured while the real node's namespaces attack.
        together_seconds: how long all attack.
    """

    victims: int
    rows: int
    crowd: int
    ballast: int
    share: float
    seconds: int
    together_seconds: int


SHORT = Size(victims=5, rows=1, crowd=70, ballast=1, share=0.05, seconds=20, together_seconds=40)
LONG = Size(victims=30, rows=10, crowd=130, ballast=8, share=1.0, seconds=120, together_seconds=600)


class Namespaces:
    """Four namespaces on the real cluster; the first is the victims'. `run` is the begin of their names."""

    def __init__(self, kubeconfig: str) -> None:
        self.run = f"hostile-{secrets.token_hex(3)}"
        self.kubeconfig = kubeconfig
        self.names = [f"{self.run}-{name}" for name in ("victims", "a", "b", "c")]
        self.all = [Kubectl(kubeconfig, namespace=name) for name in self.names]
        self.victims, *self.attackers = self.all
        self.admin = Kubectl(kubeconfig)

    def create_pods(self, size: Size) -> None:
        """Return when all but the ballast are ready."""
        victims = map(victim, range(size.victims))
        create(self.victims, *victims)
        for attacker in self.attackers:
            ballast = map(ballast_pod, range(size.ballast))
            create(attacker, attacker_pod(), *ballast)
        create(self.attackers[0], sent_data(), *pods_of_rows(size.rows))
        seconds = f"--timeout={PATIENCE_SECONDS:g}s"
        ready = ("wait", "--for=condition=Ready", "pod", "-l", "!ballast", seconds)
        for tenant in self.all:
            tenant.run(*ready, timeout=PATIENCE_SECONDS)

    async def attack(self, size: Size) -> None:
        """Return when all markers of the attackers exist, but for those of the rows."""
        async with asyncio.TaskGroup() as group:
            for attacker in self.attackers:
                creating = asyncio.to_thread(create, attacker, *markers(crowd=size.crowd))
                group.create_task(creating)

    def attack_with_rows(self) -> None:
        create(self.attackers[0], *markers_of_rows())

    def remove(self) -> None:
        free = ("--type=merge", '--patch={"metadata":{"finalizers":null}}')
        for tenant in self.all:
            # No manager is left that would remove the finalizers.
            for marker in tenant.items("podprobemarkers"):
                tenant.run(
                    "patch",
                    "podprobemarker",
                    marker["metadata"]["name"],
                    *free,
                )
        self.admin.run("delete", "namespace", *self.names, timeout=PATIENCE_SECONDS)
        self.admin.run("delete", "clusterrolebinding", self.run)


def create(kubectl: Kubectl, *objects: Json) -> None:
    """One request for each object. `apply` needs two, and its annotation has a limit of bytes."""
    listed = typed("List", items=list(objects))
    kubectl.run(
        "create",
        "-f",
        "-",
        stdin=json.dumps(listed),
        timeout=PATIENCE_SECONDS,
    )


@pytest.fixture
def cluster() -> Iterator[Namespaces]:
    kubeconfig = os.environ.get("KUBECONFIG")
    if not kubeconfig or not os.environ.get("KRUISE_PROBE_CRI_ENDPOINT"):
        pytest.skip('needs a node: eval "$(hack/cluster env)"')
    cluster = Namespaces(kubeconfig)
    install(cluster.admin)
    for name in cluster.names:
        cluster.admin.run("create", "namespace", name)
    binding = ("clusterrolebinding", cluster.run, f"--group={cluster.run}")
    cluster.admin.run("create", *binding, "--clusterrole=cluster-admin")
    yield cluster
    cluster.remove()


class Health:
    """Polls /healthz and the memory of both programs, and the Leases.

    Attributes:
        polls, failed: how often /healthz was requested, and did not return 200.
        longest: by the names of the Leases, their greatest age in seconds.
    """

    def __init__(self, client: RestClient, programs: list[Program]) -> None:
        self.polls = 0
        self.failed = 0
        self.longest: dict[str, float] = {}
        self._client = client
        self._programs = programs

    async def watch(self) -> None:
        for second in count():
            for program in self._programs:
                self.polls += 1
                self.failed += not await program.is_healthy()
            leases = await self._client.list_page(LEASES, namespace=SYSTEM)
            for lease in leases.items:
                renewed = datetime.fromisoformat(lease.spec.renew_time or "")
                age = (utc_now() - renewed).total_seconds()
                name = lease.key.name
                self.longest[name] = max(self.longest.get(name, 0.0), age)
            if second % REPORT_SECONDS == 0:
                self.print_memory()
            await asyncio.sleep(1.0)

    def print_memory(self) -> None:
        used = [f"{program.name} {program.rss_mb:.0f} MB" for program in self._programs]
        print_line(f"{', '.join(used)}, {self.failed} failures of /healthz")


@forms(short="5-victims-a-minute", long="30-victims-12-minutes")
async def test_victims_keep_their_probes_beside_attackers_of_every_kind(
    cluster: Namespaces, short: bool, limits: Limits, tmp_path: Path
) -> None:
    size = SHORT if short else LONG
    await asyncio.to_thread(cluster.create_pods, size)
    node = cluster.victims.items("nodes")[0]["metadata"]["name"]
    flags = (f"--node-name={node}", f"--cri-endpoint={os.environ['KRUISE_PROBE_CRI_ENDPOINT']}")
    bound = ("--bound-object-kind=Node", f"--bound-object-name={node}")
    config = load_config(cluster.kubeconfig)
    client = RestClient(config=config, field_manager="soak", user_agent="soak")
    # Small objects, and no history of them: a collection of large garbage would delay what is measured here.
    namespace = cluster.victims.namespace
    informer = SharedInformer(ResourceListerWatcher(client, PODS, namespace), name="pods")
    changes = LabelChanges(namespace, size.victims)
    informer.add_event_handler(changes)
    async with (
        client,
        nothing_is_stale(client, namespace),
        tenants(cluster.kubeconfig, cluster.run, size.share) as others,
        background(informer.run()),
        programs.running(
            "manager",
            Path(kubeconfig_of(cluster.admin, MANAGER, tmp_path)),
            tmp_path,
        ) as manager,
        programs.running(
            "daemon",
            Path(kubeconfig_of(cluster.admin, DAEMON, tmp_path, *bound)),
            tmp_path,
            *flags,
        ) as daemon,
    ):
        both = [manager, daemon]
        for program in both:
            await program.ready(seconds=PATIENCE_SECONDS)
        health = Health(client, both)
        create(cluster.victims, victims_marker())
        await until_changed(daemon, changes, since=0.0)
        await manager.until(
            "has written everything",
            partial(has_no_work, manager),
            seconds=PATIENCE_SECONDS,
        )
        health.print_memory()
        calm = await measured_windows(WINDOW_SECONDS)
        ports = [port_of(program) for program in both]
        async with background(health.watch()), strangers(*ports, count=STRANGERS):
            await cluster.attack(size)
            print_line(f"all markers of the attackers exist; {size.seconds} s follow")
            attacked = await measured_windows(size.seconds)
            await asyncio.to_thread(cluster.attack_with_rows)
            await others.attack()
            await others.expect("attacked")
            print_line(f"each tenant has attacked once; {size.together_seconds} s follow")
            together = await measured_windows(size.together_seconds)
            await until_changed(daemon, changes, since=uptime_seconds())
        print_line(f"how often each tenant repeated its attack: {await others.end()}")
        await daemon.until(
            "each change of a victim has its event",
            partial(has_all_events, cluster.victims, changes),
            seconds=PATIENCE_SECONDS,
        )
        for program in both:
            assert program.running, program.tail()
        for attacker in cluster.attackers:
            assert not restarts(attacker), "their servers run"
        print_line(f"peak memory in MB: manager {manager.peak_mb:.0f}, daemon {daemon.peak_mb:.0f}")
        usual = last_percentiles(changes, calm, "without an attack")
        delayed = last_percentiles(changes, attacked, "attacked")
        last_percentiles(changes, together, "while all attack")
        assert manager.peak_mb <= MAX_MANAGER_MB
        assert daemon.peak_mb <= MAX_DAEMON_MB
        check_health(health, node, limits)
        check_work(manager, limits)
        for probe, seconds in delayed.items():
            limits.check(
                f"{probe}: an attack delays 99 % of flips by at most {LATE_SECONDS:g} s",
                seconds - usual[probe] <= LATE_SECONDS,
            )


async def until_changed(daemon: Program, changes: LabelChanges, *, since: float) -> None:
    await daemon.until(
        f"each label of a victim has changed since {since:.1f}",
        partial(changes.all_since, since),
        seconds=PATIENCE_SECONDS,
    )


async def has_no_work(manager: Program) -> bool:
    return await manager.metric("workqueue_depth") == 0


async def has_all_events(victims: Kubectl, changes: LabelChanges) -> bool:
    """Whether the events of each probe of a victim count all changes of its label."""
    counted: Counter[tuple[str, str]] = Counter()
    for event in await asyncio.to_thread(victims.items, "events"):
        if event["reason"] in (EVENT_SUCCEEDED, EVENT_FAILED):
            pod = event["involvedObject"]["name"]
            marker_and_probe, *_ = event["message"].split(":")
            _, probe = marker_and_probe.split("#")
            counted[pod, probe] += event["count"]
    return all(counted[probe] >= len(seen) for probe, seen in changes.of.items())


async def measured_windows(seconds: int) -> range:
    """Waits for the next whole windows of `seconds` together."""
    first = int(uptime_seconds() // WINDOW_SECONDS) + 1
    windows = range(first, first + seconds // WINDOW_SECONDS)
    ends_at = windows.stop * WINDOW_SECONDS
    await asyncio.sleep(ends_at - uptime_seconds())
    return windows


def port_of(program: Program) -> int:
    return int(program.address("/healthz").rpartition(":")[2])


def restarts(kubectl: Kubectl) -> int:
    """Of the attackers' containers."""
    restarts = 0
    for pod in kubectl.items("pods", "-l", "!ballast"):
        (status,) = pod["status"]["containerStatuses"]
        restarts += status["restartCount"]
    return restarts


def last_percentiles(changes: LabelChanges, windows: range, phase: str) -> dict[str, float]:
    """Print the delays of the phase; return the 99th percentile by probe."""
    late = {}
    for probe, period in PERIODS.items():
        delays = changes.delays(probe, windows)
        late[probe] = percentile(delays, 0.99)
        median = percentile(delays, 0.5)
        print_line(
            f"{probe} of {period} s, {phase}: {len(delays)} flips, median {median:.2f} s, "
            f"p99 {late[probe]:.2f} s"
        )
    return late


def percentile(delays: list[float], share: float) -> float:
    """A percentile of sorted delays."""
    number = int(len(delays) * share)
    return delays[min(number, len(delays) - 1)]


def check_health(health: Health, node: str, limits: Limits) -> None:
    print_line(f"/healthz: {health.polls} polls, {health.failed} without 200")
    limits.check("/healthz always returns 200", health.polls > 0 and not health.failed)
    lease_limits = {
        LEADER_ELECTION_ID: MANAGER_LEASE_SECONDS,
        daemon_lease_name(node): DAEMON_LEASE_SECONDS,
    }
    for name, limit in lease_limits.items():
        age = health.longest[name]
        print_line(f"Lease {name} was at most {age:.1f} s old")
        limits.check(f"Lease {name} is renewed within {limit:g} s", age <= limit)


def check_work(manager: Program, limits: Limits) -> None:
    log = manager.log.read_text(errors="replace")
    timeouts = Counter(TIMED_OUT.findall(log))
    print_line(f"reconciles of the manager that timed out: {dict(timeouts)}")
    # Of a full node's spec: the API server begins its patch again if the daemon has written meanwhile. The next one may end.
    del timeouts["nodepodprobe"]
    limits.check("only the spec of a full node times out", not timeouts)
    slow = [float(seconds) for seconds in SLOW_STEP.findall(log)]
    print_line(f"steps of the manager over 50 ms of CPU: {slow}")
    limits.check("no step of the manager takes 50 ms", not slow)
