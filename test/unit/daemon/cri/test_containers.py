"""The containers of a scripted runtime: rows of (time, action, expected).

At its time, a row first compares what is expected, then acts. Calls and callbacks are counted since the last row.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from support.background import background, no_failed_callback
from support.cases import cases
from support.fake_runtime import FakeContainer, ScriptedRuntime

from kruise_probe.daemon.cri.containers import MISSING, ContainerKey, ContainerWatcher, newest
from kruise_probe.daemon.cri.grpc_runtime import GrpcRuntime
from kruise_probe.daemon.cri.runtime import (
    ContainerNotFound,
    ContainerState,
    ContainerStatus,
    PodSandboxStatus,
    RuntimeContainer,
    RuntimeUnavailable,
)

SHORT = {"list": "ListContainers", "status": "ContainerStatus", "sandbox": "PodSandboxStatus"}
GONE, REFUSED = ContainerNotFound("gone"), RuntimeUnavailable("connection refused")


class PartlyDeaf(ScriptedRuntime):
    """Calls for the id `deaf` fail after `patience` seconds; status calls take `seconds`, at most `most` at a time."""

    deaf = ""
    patience = seconds = 0.0
    in_flight = most = 0

    async def container_status(self, container_id: str) -> ContainerStatus:
        await self._listen(container_id)
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        await asyncio.sleep(self.seconds)
        self.in_flight -= 1
        return await super().container_status(container_id)

    async def sandbox_status(self, sandbox_id: str) -> PodSandboxStatus:
        await self._listen(sandbox_id)
        return await super().sandbox_status(sandbox_id)

    async def _listen(self, id: str) -> None:
        if id == self.deaf:
            self.calls[id] += 1
            await asyncio.sleep(self.patience)
            raise RuntimeUnavailable(f"no response for {id}")


class Node:
    """A watcher of a scripted runtime. `heard` has the pods whose callbacks were called."""

    def __init__(self, runtime: PartlyDeaf) -> None:
        self.runtime = runtime
        self.watcher = ContainerWatcher(cast(GrpcRuntime, runtime))
        self.heard: list[str] = []
        self.unsubscribe: list[Callable[[], None]] = []
        self.removed: FakeContainer

    def view(self, uid: str, name: str = "main") -> str:
        """Id, state, addresses and problem of the container."""
        view = self.watcher.find(uid, name)
        if view in (None, MISSING):
            return ""
        if view.state is ContainerState.RUNNING:
            assert view.started_at == self.runtime.containers[view.id].started_at
        network = ["host"] if view.host_network else view.ips
        return " ".join((view.id, view.state.value, *network, view.problem)).strip()


Action = Callable[[Node], object]


class Expected(NamedTuple):
    views: dict[str, str]
    calls: dict[str, int | range]
    heard: list[str] | None = None
    available: bool | None = None


Row = tuple[float, Action | None, Expected | None]


def is_(heard: list[str] | None = None, available: bool | None = None, calls: dict[str, int | range] | None = None, **views: str) -> Expected:  # fmt: skip
    """`calls`: of `SHORT` or an id. `views`: by the number of the pod, as `p1`."""
    return Expected({f"uid-{k[1:]}": v for k, v in views.items()}, calls or {}, heard, available)


def subscribe(number: int = 1, name: str = "main") -> Action:
    uid = f"uid-{number}"
    return lambda n: n.unsubscribe.append(
        n.watcher.subscribe(uid, name, lambda: n.heard.append(uid))
    )


def start(number: int = 1, name: str = "main", **more: Any) -> Action:
    """Start a container and subscribe to it."""
    return lambda n: (
        n.runtime.start(f"uid-{number}", name, **more),
        subscribe(number, name)(n),
    )


def run(*numbers: int, **more: Any) -> Action:
    """Start containers nobody has subscribed to."""
    return lambda n: [n.runtime.start(f"uid-{number}", **more) for number in numbers]


def change(number: int, state: ContainerState = ContainerState.EXITED) -> Action:
    def act(node: Node) -> None:
        container = node.runtime.containers[f"container-{number}"]
        container.started_at = container.created_at
        container.state = state

    return act


def fail(call: str, error: Exception | None = REFUSED) -> Action:
    """Let a call fail from now on; without an error, succeed."""
    return lambda n: (
        n.runtime.failures.update({SHORT[call]: error})  # type: ignore[dict-item]  # RuntimeFailure
        if error
        else n.runtime.failures.pop(SHORT[call])
    )


def deaf(id: str, patience: float = 0.0) -> Action:
    def act(node: Node) -> None:
        node.runtime.deaf, node.runtime.patience = id, patience

    return act


def all_(*actions: Action) -> Action:
    return lambda n: [action(n) for action in actions]


def remove(node: Node) -> None:
    node.removed = node.runtime.containers["container-0"]
    node.runtime.remove(node.removed)


def put_back(node: Node) -> None:
    node.runtime.containers["container-0"] = node.removed


RUNS = "container-0 Running 10.0.0.1"

TIMELINES: dict[str, list[Row]] = {
    "pod-in-the-network-of-the-host-has-no-address": [(0, start(host_network=True), None), (1, None, is_(p1="container-0 Running host"))],
    "pod-network-without-an-address-is-asked-again": [
        (0, start(ip=""), None), (5, lambda n: n.runtime.sandboxes.update({"sandbox-uid-1": PodSandboxStatus(("10.0.0.1",), False)}), is_(calls={"list": 5, "sandbox": 5}, p1="container-0 Running")),
        (6.1, None, is_(heard=["uid-1"], p1=RUNS)), (10, None, is_(calls={"sandbox": 0})),
    ],
    "at-most-one-list-a-second-for-any-number-of-containers": [
        (0, all_(*map(start, range(100))), None), (0.5, None, None), (60.5, None, is_(calls={"list": 60, "status": 0})),
    ],
    "one-status-for-each-new-container-and-each-new-sandbox": [
        (0, all_(start(1), start(1, "sidecar"), run(2)), None), (5, all_(change(0), run(1, attempt=1)), is_(calls={"status": 2, "sandbox": 1})),
        (10, None, is_(calls={"status": 1, "sandbox": 0}, p1="container-3 Running 10.0.0.1")),
    ],
    "status-of-a-removed-container-is-forgotten": [
        (0, start(), None), (2, remove, is_(p1=RUNS)), (4, put_back, is_(p1="")), (6, None, is_(calls={"status": 1, "sandbox": 1}, p1=RUNS)),
    ],
    "without-subscribers-one-list-in-fifteen-seconds": [
        (0, start(), None), (5, lambda n: n.unsubscribe[0](), None), (6, None, None), (66, None, is_(calls={"list": 4}, p1="")),
    ],
    "subscribers-are-called-for-their-container-only": [
        (0, all_(start(1), start(2)), None), (5, change(1), is_(heard=["uid-1", "uid-2"])), (10, None, is_(heard=["uid-2", "uid-2"], p2="container-1 Exited")),
    ],
    "new-subscribers-of-an-unknown-container-request-one-list": [
        (1, all_(run(1), *[subscribe()] * 10), None), (1.25, None, is_(calls={"list": 1}, p1=RUNS)),
    ],
    "new-subscriber-of-a-listed-container-gets-its-status-at-once": [
        (0, run(1), None), (1, subscribe(2), None), (2.5, subscribe(), None), (2.51, None, is_(calls={"list": 0, "status": 1, "sandbox": 1}, p1=RUNS)),
    ],
    "new-subscriber-of-a-container-that-has-exited-sees-it-at-once": [
        (0, all_(run(1), change(0)), None), (2, subscribe(), None), (2.001, None, is_(p1="container-0 Exited")),
    ],
    "new-subscribers-in-succession-share-lists": [
        (1.5, None, None), *((1.5 + n / 20, start(n), None if n else is_()) for n in range(20)),
        (2.7, None, is_(p19="container-19 Running 10.0.0.1")),
    ],
    "created-container-becomes-a-running-one-with-its-start": [
        (0, start(state=ContainerState.CREATED), None), (1, change(0, ContainerState.RUNNING), is_(calls={"status": 0}, p1="container-0 Created")), (2.1, None, is_(p1=RUNS)),
    ],
    "unavailable-runtime-is-retried": [
        (0, start(), None), (1.5, fail("list"), is_(available=True)),
        (63.5, fail("list", None), is_(available=False, heard=["uid-1"], calls={"list": range(25, 41)}, p1=RUNS)), (65.5, None, is_(available=True, heard=["uid-1"], p1=RUNS)),
    ],
    **{
        f"{call}-that-keeps-failing-causes-one-list-a-second": [
            (0, all_(fail(call, GONE), start()), None), (0.5, None, None),
            (30.5, fail(call, None), is_(calls={"list": 30, call: 30}, p1="")), (31.6, None, is_(p1=RUNS)),
        ]
        for call in ("status", "sandbox")
    },
    **{
        f"failed-status-affects-only-its-container-{id}-{patience}": [
            (0, all_(deaf(id, patience), *map(start, range(20))), None), (0.5, None, is_(p19="container-19 Running 10.0.0.1")), (5.5, start(20), None),
            (5.75, None, is_(heard=["uid-20"], p20="container-20 Running 10.0.0.1")),
            (35.75, deaf(""), is_(available=True, heard=[], calls={id: calls, "list": range(30, 33)}, p0=f"container-0 Unknown no response for {id}")),
            (42, None, is_(p0=RUNS)),
        ]
        for id in ("container-0", "sandbox-uid-0")
        for patience, calls in ((0.0, 30), (5.0, 5))
    },
    "status-that-is-not-known-yet-delays-no-change-of-another-container": [
        (0, all_(deaf("container-0", 60), start(0), start(1)), None), (2, change(1), is_(heard=["uid-1"])),
        (3.1, None, is_(heard=["uid-1", "uid-1"], p1="container-1 Exited", p0="")),
    ],
    **{
        f"replaced-container-is-not-shown-while-the-new-one-has-no-status-{id}": [
            (0, all_(deaf(id, 5), start(sandbox_id="sandbox-old")), None),
            (0.5, all_(change(0), run(1, ip="10.0.0.2", sandbox_id="sandbox-new")), None),
            (3.5, deaf(""), is_(heard=["uid-1"], calls={"list": 3, other: 1, id: 1}, p1="")),
            (8.5, None, is_(p1="container-1 Running 10.0.0.2")),
        ]
        for id, other in (("container-1", "sandbox"), ("sandbox-new", "status"))
    },
    "runtime-that-dies-before-a-status-is-unavailable-at-the-next-list": [
        (0, start(), None), (1.5, all_(fail("status"), start(2)), None), (1.8, fail("list"), is_(available=True)), (2.8, None, is_(available=False, p1=RUNS)),
        (32.8, all_(fail("status", None), fail("list", None)), is_(calls={"status": 0})), (34.9, None, is_(available=True, p1=RUNS, p2="container-1 Running 10.0.0.1")),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", TIMELINES)
async def test_timeline_of_the_containers(name: str) -> None:
    node, now = Node(PartlyDeaf()), 0.0
    with no_failed_callback():
        async with background(node.watcher.run()):
            await asyncio.sleep(0.001)
            for at, action, expected in TIMELINES[name]:
                await asyncio.sleep(at - now)
                now = at
                if expected is not None:
                    assert {uid: node.view(uid) for uid in expected.views} == expected.views, at
                    assert expected.available in (None, node.watcher.available), at
                    assert expected.heard in (None, node.heard), at
                    for call, count in expected.calls.items():
                        calls = node.runtime.calls[SHORT.get(call, call)]
                        assert calls in (count if isinstance(count, range) else [count]), (at, call)
                node.heard.clear()
                node.runtime.calls.clear()
                if action is not None:
                    action(node)


async def test_at_most_eight_status_calls_of_containers_are_in_flight() -> None:
    node = Node(PartlyDeaf())
    node.runtime.seconds = 0.1
    async with background(node.watcher.run()):
        for number in range(20):
            start(number)(node)
        await asyncio.sleep(2)
        assert node.runtime.most == 8
        assert all(node.view(f"uid-{number}") for number in range(20))


async def test_the_pause_between_retries_doubles_up_to_two_seconds_and_starts_again() -> None:
    node, listed = Node(PartlyDeaf()), list[int]()
    async with background(node.watcher.run()):
        for _ in range(2):
            node.runtime.failures["ListContainers"] = REFUSED
            await asyncio.sleep(16)
            node.runtime.calls.clear()
            await asyncio.sleep(20)
            listed.append(node.runtime.calls["ListContainers"])
            node.runtime.failures.clear()
            await asyncio.sleep(5)
    assert listed == [10, 10]


@cases("deaf after", a_response=("", 1.5), no_response=("container-0", 3.5))
async def test_a_container_is_known_once_its_status_calls_have_returned(
    deaf: str, after: float
) -> None:
    node = Node(PartlyDeaf())
    node.runtime.seconds, node.runtime.patience, node.runtime.deaf = 1.0, 3.0, deaf
    start()(node)
    known = [node.watcher.find("uid-1", "main") is not None]
    async with background(node.watcher.run()):
        await asyncio.sleep(0.5)
        known.append(node.watcher.find("uid-1", "main") is not None)
        await asyncio.sleep(after - 0.5)
        known.append(node.watcher.find("uid-1", "main") is not None)
    assert known == [False, False, True]


async def test_runtime_unavailable_at_the_start_is_logged_once() -> None:
    node = Node(PartlyDeaf())
    node.runtime.failures["ListContainers"] = RuntimeUnavailable("there is no socket at /none")
    subscribe()(node)
    with capture_logs() as logs:
        async with background(node.watcher.run()):
            await asyncio.sleep(60)
            (line,) = logs
            assert node.heard == ["uid-1"], "why is known now"
            assert (line["log_level"], line["error"]) == ("warning", "there is no socket at /none")
            node.runtime.failures.clear()
            await asyncio.sleep(60)
    assert [each["log_level"] for each in logs if each["log_level"] != "debug"] == [
        "warning",
        "info",
    ]
    assert node.heard == ["uid-1"] * 2


def info(id: str, attempt: int, created: int, *, uid: str = "uid", sandbox: str = "s", state: ContainerState = ContainerState.EXITED) -> RuntimeContainer:  # fmt: skip
    return RuntimeContainer(id, "main", uid, sandbox, state, created, attempt)


LISTS = {
    "the-last-attempt-and-of-it-the-youngest": [info("first", 0, 3), info("second", 1, 1), info("newest", 1, 2), info("no pod's", 9, 1, uid="")],
    "one-that-runs-in-a-new-sandbox": [
        info("old", 0, 1, sandbox="old"), info("last of the old", 5, 2, sandbox="old"), info("before it", 0, 3, sandbox="new"),
        info("newest", 1, 4, sandbox="new", state=ContainerState.RUNNING),
    ],
    "one-that-runs-before-one-that-was-only-created": [
        info("newest", 0, 1, state=ContainerState.RUNNING), info("created", 1, 1, state=ContainerState.CREATED),
    ],
}  # fmt: skip


@cases("containers", **LISTS)
@given(data=st.data())
def test_newest_container_of_a_name(containers: list[RuntimeContainer], data: st.DataObject) -> None:  # fmt: skip
    chosen = newest(data.draw(st.permutations(containers)))
    assert {key: container.id for key, container in chosen.items()} == {ContainerKey("uid", "main"): "newest"}  # fmt: skip
