"""Tenants who stay within every documented limit, each in a namespace of its own: a program beside the test.

    python -m soak.tenants KUBECONFIG RUN SHARE

Their pods and nodes are hollow. The program first creates all objects, then prints a line. After a line of input all attacks begin,
until the input ends. When each attack has been made once, it prints another line, and at the end how often each was repeated. Then it
removes its objects. A SHARE of 1.0 is the size that was seen to stop a manager.

Each tenant is a user of the group RUN, which the test allows everything. So API priority and fairness apply to the tenants, as to those
of a real cluster; an administrator is exempt. Objects are created as fast as the API server allows. The attacks together send at most
`REQUESTS_PER_SECOND`, because the test measures the manager and the daemons, and an API server with two cores stores about a hundred
small objects a second. Most of the load is what the manager makes of these requests: the edit of a marker with 32 probes on 1,200
pods writes twelve NodePodProbes of up to 1 MiB.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
)
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import structlog
from support.hollow import (
    LABEL,
    Daemons,
    Hollow,
    marker_object,
    pod_ip,
    pod_name,
    pod_object,
    probe,
    run_concurrently,
)
from support.target import Target, marker_path, node_pod_probe_path, pod_path
from support.wire import Json

from kruise_probe.api.errors import (
    Conflict,
    ConnectionFailed,
    NotFound,
    ServerError,
    TooManyRequests,
)
from kruise_probe.api.times import format_time, utc_now
from kruise_probe.api.token_bucket import TokenBucket
from kruise_probe.client.config import load_config
from kruise_probe.client.request import Request
from kruise_probe.client.rest import RestClient
from kruise_probe.client.transport import Response

BYSTANDERS = 5000
PODS_OF_A_NODE = 100
IN_FLIGHT = 6
"""Requests of all tenants: the API server serves others too."""
REQUESTS_PER_SECOND = 30
"""Of all tenants while they attack."""
PACE_SECONDS = 0.25
"""Between two requests of an attack."""
REPORT_SECONDS = 60.0
CONFLICT_SECONDS = 11.0
PATIENCE_SECONDS = 900.0
"""For all objects to be created, for all attacks to begin, and for the removal. It only ends a test that would hang."""
PLACED = 0.0
"""The first value of each attack: its objects exist."""

HELD = "example.com/theirs"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


class _Pace:
    """What all tenants send together: at most IN_FLIGHT requests at once and, once limited, REQUESTS_PER_SECOND, first come first."""

    def __init__(self) -> None:
        self.is_limited = False
        self._few = asyncio.Semaphore(IN_FLIGHT)
        self._turn = asyncio.Lock()
        self._tokens = TokenBucket(burst=1, interval_seconds=1 / REQUESTS_PER_SECOND)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        if self.is_limited:
            async with self._turn:
                await asyncio.sleep(self._tokens.take(asyncio.get_running_loop().time()))
        async with self._few:
            yield


class _PacedClient(RestClient):
    def __init__(self, pace: _Pace, **options: Any) -> None:
        super().__init__(**options)
        self._pace = pace

    async def send(self, request: Request) -> Response:
        async with self._pace.kept():
            return await super().send(request)


Work = Coroutine[Any, Any, object]
"""One request, or a few that belong together."""
ProbesOf = Callable[[int], list[Json]]
"""The probes of a marker, by its number."""
REFUSED = (ConnectionFailed, TooManyRequests, ServerError, NotFound, Conflict)


class Tenant(Hollow):
    """A namespace with nodes of its own.

    Attributes:
        changes: steps of the attack.
        wanted: objects to create.
        made: objects created.
        events: `placed` is set once the objects exist, `attacked` after the first step.
    """

    def __init__(self, api: Target, namespace: str, share: float) -> None:
        super().__init__(api, namespace)
        self.changes = self.wanted = self.made = 0
        self.events = {"placed": asyncio.Event(), "attacked": asyncio.Event()}
        self._share = share
        self._nodes = 0
        self._daemons = Daemons(api, self._result)
        self._is_good = True

    def scaled(self, number: int) -> int:
        return max(int(number * self._share), 1)

    def node(self, number: int) -> str:
        return f"hollow-{self.namespace}-{number}"

    @property
    def nodes(self) -> list[str]:
        return [self.node(number) for number in range(self._nodes)]

    async def start(self) -> None:
        body = {"metadata": {"name": self.namespace}}
        await self.change(self.api.create("/api/v1/namespaces", body))
        # The controller manager may have made it.
        account = f"/api/v1/namespaces/{self.namespace}/serviceaccounts"
        await self.change(self.api.create(account, {"metadata": {"name": "default"}}))

    async def place(self, pods: int, *, on: int = PODS_OF_A_NODE) -> int:
        """Create nodes and pods, `on` a node. Return how many pods there are."""
        pods = self.scaled(pods)
        self._nodes = -(-pods // on)
        await self.create_all(self.add_node(node) for node in self.nodes)
        await self.create_all(
            self.add_pod(number, node=self.node(number // on)) for number in range(pods)
        )
        return pods

    def __str__(self) -> str:
        return f"{self.namespace} has made {self.made} of {self.wanted} objects and {self.changes} attacks"

    async def change(self, work: Work) -> bool:
        """Returns whether the request succeeded. An overloaded server may refuse it."""
        with contextlib.suppress(*REFUSED):
            await work
            return True
        return False

    async def create_all(self, work: Iterable[Work]) -> None:
        all_work = list(work)
        self.wanted += len(all_work)
        await run_concurrently(map(self._create, all_work))

    async def _create(self, work: Work) -> None:
        if await self.change(work):
            self.made += 1

    async def create_markers(self, count: int, probes_of: ProbesOf) -> None:
        await self.create_all(
            self.add_marker(*probes_of(number), name=f"m{number}") for number in range(count)
        )

    async def relabel(self, number: int, labels: Json) -> None:
        path = pod_path(pod_name(number), self.namespace)
        await self.api.merge(path, {"metadata": {"labels": labels}})

    async def add_held_marker(self, name: str) -> None:
        """The marker is being deleted, and its finalizer stays."""
        body = marker_object(name=name)
        body["metadata"]["finalizers"] = [HELD]
        await self.api.create(self._markers, body)
        await self.remove_marker(name)

    @property
    def _markers(self) -> str:
        return marker_path("", self.namespace).rstrip("/")

    async def report(self, *, flips: bool = True) -> None:
        """The daemons of its nodes write a new state of all probes."""
        self._is_good = not flips or not self._is_good
        for node in self.nodes:
            await self.change(self._report_of(node))

    async def _report_of(self, node: str) -> None:
        path = node_pod_probe_path(node)
        status = self._daemons.status_of(await self.api.get(path))
        await self.api.merge(f"{path}/status", {"status": status})

    def _result(self, pod: str, name: str) -> tuple[str, str]:
        return ("Succeeded" if self._is_good else "Failed"), "reported"

    async def remove_all(self) -> None:
        await self.change(self._remove())

    async def _remove(self) -> None:
        """Removes finalizers first: no other client removes those of held markers."""
        markers = await self.api.get(self._markers)
        await run_concurrently(map(self._free, markers["items"]))
        paths = [self._markers, pod_path("", self.namespace).rstrip("/")]
        for node in self.nodes:
            paths += [f"/api/v1/nodes/{node}", node_pod_probe_path(node)]
        paths.append(f"/api/v1/namespaces/{self.namespace}")
        for path in paths:
            await self.change(self.api.delete(path, grace_seconds=0))

    async def _free(self, marker: Json) -> None:
        path = marker_path(marker["metadata"]["name"], self.namespace)
        await self.change(self.api.merge(path, {"metadata": {"finalizers": None}}))


Attack = Callable[[Tenant], AsyncGenerator[float]]
"""Creates its objects and yields PLACED, then yields after each attack the seconds until the next one."""


async def bystanders(tenant: Tenant) -> AsyncGenerator[float]:
    """Pods of a template with one probe. They do not attack."""
    await tenant.place(BYSTANDERS)
    await tenant.create_all([tenant.add_marker()])
    yield PLACED
    tenant.events["attacked"].set()


async def many_probes(tenant: Tenant) -> AsyncGenerator[float]:
    """Row 1: 64 markers of 32 probes; every edit concerns all pods of the tenant."""
    await tenant.place(1200)
    await tenant.create_markers(64, partial(small_probes, probes=32))
    yield PLACED
    await tenant.report(flips=False)
    for turn in count(1):
        number = turn % 4
        edited = small_probes(number, probes=32, turn=turn)
        await tenant.change(tenant.edit_marker(*edited, name=f"m{number}"))
        yield 20


def small_probes(number: int, *, probes: int = 1, turn: int = 0) -> list[Json]:
    how = {
        "exec": {"command": ["true"]},
        "periodSeconds": 60 + turn % 60,
    }
    return [
        probe(
            f"p{place}",
            probe=how,
            podConditionType=f"example.com/m{number}-{place}",
            markerPolicy=None,
        )
        for place in range(probes)
    ]


async def held_markers(tenant: Tenant) -> AsyncGenerator[float]:
    """Row 2: the tenant's own finalizer holds markers that are being deleted, while pods change."""
    pods = await tenant.place(180, on=60)
    markers = tenant.scaled(1500)
    await tenant.create_all(tenant.add_held_marker(f"m{number}") for number in range(markers))
    yield PLACED
    for turn in count(1):
        await tenant.change(tenant.relabel(turn % pods, {"turn": f"{turn}"}))
        yield PACE_SECONDS


async def live_markers(tenant: Tenant) -> AsyncGenerator[float]:
    """Row 3: 1,200 markers select each pod, and 60 of them are deleted and created again."""
    await tenant.place(200, on=50)
    markers = tenant.scaled(1200)
    deleted = range(min(60, markers))
    await tenant.create_markers(markers, small_probes)
    yield PLACED
    while True:
        await tenant.report()
        for number in deleted:
            await tenant.change(tenant.remove_marker(f"m{number}"))
        yield 20
        for number in deleted:
            await tenant.change(tenant.add_marker(*small_probes(number), name=f"m{number}"))
        yield 20


async def edits_of_a_large_marker(tenant: Tenant) -> AsyncGenerator[float]:
    """Row 4: each edit has other words and labels, 39 KiB in all."""
    await tenant.place(1)
    await tenant.create_all([tenant.add_marker(*large_probes(0))])
    yield PLACED
    for turn in count(1):
        await tenant.change(tenant.edit_marker(*large_probes(turn)))
        yield PACE_SECONDS


def large_probes(turn: int) -> list[Json]:
    probes: list[Json] = []
    for place in range(8):
        words = [f"{turn:x}.{place}.{word:x}" for word in range(128)]
        labels = {f"example.com/l{place}-{key}": f"v{turn}" for key in range(12)}
        large = probe(
            f"p{place}",
            probe={
                "exec": {"command": words},
                "periodSeconds": 60,
            },
            podConditionType=f"example.com/c{place}",
            markerPolicy=[{"state": "Succeeded", "labels": labels}],
        )
        probes.append(large)
    return probes


async def pods_with_many_ports(tenant: Tenant) -> AsyncGenerator[float]:
    """Row 4: pods that are deleted leave their ports in no cache."""
    await tenant.place(1)
    await tenant.create_all([tenant.add_marker()])
    yield PLACED
    collection = pod_path("", tenant.namespace).rstrip("/")
    for turn in count(1):
        body = pod_object(
            pod_name(turn),
            node=tenant.node(0),
            ip=pod_ip(0),
            at=format_time(utc_now()),
            labels={"app": "web", "example.com/number": str(turn)},
        )
        del body["status"]
        body["spec"]["containers"][0]["ports"] = [
            {"name": f"p{turn % 9999}-{number}", "containerPort": number + 1}
            for number in range(1000)
        ]
        await tenant.change(tenant.api.create(collection, body))
        await tenant.change(tenant.remove_pod(pod_name(turn)))
        yield PACE_SECONDS


async def updates_that_change_nothing(tenant: Tenant) -> AsyncGenerator[float]:
    """Row 5: an annotation without a meaning."""
    pods = await tenant.place(100)
    await tenant.create_markers(5, small_probes)
    yield PLACED
    for turn in count(1):
        path = pod_path(pod_name(turn % pods), tenant.namespace)
        metadata = {"annotations": {"example.com/turn": f"{turn}"}}
        await tenant.change(tenant.api.merge(path, {"metadata": metadata}))
        yield PACE_SECONDS / 5


async def refused_patches(tenant: Tenant) -> AsyncGenerator[float]:
    """Row 6: a policy of the cluster refuses the marks of all pods."""
    metadata = {"name": f"refuse-{tenant.namespace}"}
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": ["pods/status"],
    }
    expression = f"!has(object.metadata.labels) || !('{LABEL}' in object.metadata.labels)"
    policy = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": expression, "message": "no marks here"}],
    }
    of_tenant = {"matchLabels": {"kubernetes.io/metadata.name": tenant.namespace}}
    binding = {
        "policyName": metadata["name"],
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": of_tenant},
    }
    try:
        await tenant.create_all(
            [
                tenant.api.create(POLICIES, {"metadata": metadata, "spec": policy}),
                tenant.api.create(BINDINGS, {"metadata": metadata, "spec": binding}),
            ]
        )
        await tenant.place(1000)
        await tenant.create_all([tenant.add_marker()])
        yield PLACED
        while True:
            await tenant.report()
            yield REPORT_SECONDS
    finally:
        for collection in (BINDINGS, POLICIES):
            await tenant.change(tenant.api.delete(f"{collection}/{metadata['name']}"))


async def labels_of_two_owners(tenant: Tenant) -> AsyncGenerator[float]:
    """Row 7: the tenant writes the label of its own marker every 11 s, which is an event each time."""
    pods = await tenant.place(200)
    await tenant.create_all([tenant.add_marker()])
    yield PLACED
    await tenant.report(flips=False)
    for turn in count(1):
        for number in range(pods):
            await tenant.change(tenant.relabel(number, {LABEL: f"theirs-{turn}"}))
        yield CONFLICT_SECONDS


async def markers_beyond_the_keys_of_a_pod(tenant: Tenant) -> AsyncGenerator[float]:
    """Rows 11 and the limits: each marker has 100 keys, and some are left out. Their labels are renamed."""
    await tenant.place(20)
    await tenant.create_markers(14, many_keys)
    yield PLACED
    for turn in count(1):
        number = turn % 14
        await tenant.change(tenant.edit_marker(*many_keys(number, turn), name=f"m{number}"))
        yield PACE_SECONDS


def many_keys(number: int, turn: int = 0) -> list[Json]:
    labels = {f"example.com/m{number}-{key}": f"v{turn}" for key in range(25)}
    policies = [{"state": "Succeeded", "labels": labels}]
    return [
        probe(
            f"p{place}",
            podConditionType=f"example.com/m{number}-{place}",
            markerPolicy=policies,
        )
        for place in range(4)
    ]


ROWS: tuple[Attack, ...] = (
    many_probes,
    held_markers,
    live_markers,
    edits_of_a_large_marker,
    pods_with_many_ports,
    updates_that_change_nothing,
    refused_patches,
    labels_of_two_owners,
    markers_beyond_the_keys_of_a_pod,
)


class Tenants:
    """The program, as the test sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def expect(self, line: str) -> None:
        """Wait for a line. The program has the deadline: its last line then says who is late, and what they have."""
        assert await self._line() == line

    async def attack(self) -> None:
        self._input.write(b"attack\n")
        await self._input.drain()

    async def end(self) -> dict[str, int]:
        """End the attacks. Return how often each was made."""
        self._input.close()
        changes: dict[str, int] = json.loads(await self._line())
        return changes

    async def _line(self) -> str:
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode().strip()

    @property
    def _input(self) -> asyncio.StreamWriter:
        assert self._process.stdin is not None
        return self._process.stdin


@asynccontextmanager
async def tenants(kubeconfig: str, run: str, share: float) -> AsyncIterator[Tenants]:
    """All objects of the tenants exist. Waits at the end until they are removed."""
    arguments = ("-m", "soak.tenants", kubeconfig, run, str(share))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    try:
        started = Tenants(process)
        await started.expect("placed")
        yield started
    finally:
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await process.wait() == 0


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _main(kubeconfig: str, run: str, share: float) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    config = load_config(kubeconfig)
    pace = _Pace()
    async with AsyncExitStack() as stack:
        attackers: dict[Tenant, Attack] = {}
        for attack in (bystanders, *ROWS):
            namespace = f"{run}-{attack.__name__.replace('_', '-')}"
            client = _PacedClient(
                pace,
                config=replace(config, as_user=namespace, as_groups=(run,)),
                field_manager="tenant",
                user_agent="tenant",
            )
            await stack.enter_async_context(client)
            tenant = Tenant(
                Target(client),
                namespace,
                share,
            )
            attackers[tenant] = attack
        try:
            await _attack(attackers, pace)
        finally:
            pace.is_limited = False
            await run_concurrently(tenant.remove_all() for tenant in attackers)


async def _attack(attackers: dict[Tenant, Attack], pace: _Pace) -> None:
    """Until the input ends."""
    begin = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_repeat(attack, tenant, begin))
            for tenant, attack in attackers.items()
        ]
        await _say_after("placed", attackers)
        await asyncio.to_thread(sys.stdin.readline)
        pace.is_limited = True
        begin.set()
        await _say_after("attacked", attackers)
        await asyncio.to_thread(sys.stdin.read)
        for task in tasks:
            task.cancel()
    say(json.dumps({tenant.namespace: tenant.changes for tenant in attackers}))


async def _say_after(event: str, tenants: Collection[Tenant]) -> None:
    """Print the event after all tenants have reached it, or who is late."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            for tenant in tenants:
                await tenant.events[event].wait()
    except TimeoutError:
        late = [str(tenant) for tenant in tenants if not tenant.events[event].is_set()]
        say(f"not {event} within {PATIENCE_SECONDS:g} s: {'; '.join(late)}")
    else:
        say(event)


async def _repeat(attack: Attack, tenant: Tenant, begin: asyncio.Event) -> None:
    await tenant.start()
    async with aclosing(attack(tenant)) as steps:
        assert await anext(steps) == PLACED
        tenant.events["placed"].set()
        await begin.wait()
        async for seconds in steps:
            tenant.changes += 1
            tenant.events["attacked"].set()
            await asyncio.sleep(seconds)


if __name__ == "__main__":
    _, kubeconfig, run, share = sys.argv
    asyncio.run(_main(kubeconfig, run, float(share)))
