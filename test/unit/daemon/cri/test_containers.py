"""The containers of a scripted runtime; their timelines are test/data/containers.yaml."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from support.background import background, no_failed_callback
from support.cases import cases
from support.fake_runtime import FakeContainer, ScriptedRuntime
from support.tables import load_table
from support.wire import Json

from kruise_probe.daemon.cri.containers import (
    MISSING,
    ContainerKey,
    ContainerView,
    ContainerWatcher,
    newest,
)
from kruise_probe.daemon.cri.grpc_runtime import GrpcRuntime
from kruise_probe.daemon.cri.runtime import (
    ContainerNotFound,
    ContainerState,
    ContainerStatus,
    PodSandboxStatus,
    RuntimeContainer,
    RuntimeUnavailable,
)

FILE = Path(__file__).parents[3] / "data" / "containers.yaml"
TIMELINES = load_table(FILE, {"range": lambda ends: range(*ends)})
SHORT = {
    "list": "ListContainers",
    "status": "ContainerStatus",
    "sandbox": "PodSandboxStatus",
}
REFUSED = RuntimeUnavailable("connection refused")


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
    """A watcher of a scripted runtime, and what happens to it. `heard` has the pods whose callbacks were called."""

    def __init__(self) -> None:
        self.runtime = PartlyDeaf()
        self.watcher = ContainerWatcher(cast(GrpcRuntime, self.runtime))
        self.heard: list[int] = []
        self._subscribed: list[Callable[[], None]] = []
        self._removed: FakeContainer

    def view(self, pod: int, name: str = "main") -> str:
        """Id, state, addresses and problem of the container."""
        view = self.watcher.find(f"uid-{pod}", name)
        if view in (None, MISSING):
            return ""
        if view.state is ContainerState.RUNNING:
            assert view.started_at == self.runtime.containers[view.id].started_at
        network = ["host"] if view.host_network else view.ips
        parts = (
            view.id,
            view.state.value,
            *network,
            view.problem,
        )
        return " ".join(parts).strip()

    def run(
        self,
        pod: int = 1,
        name: str = "main",
        state: str = "Running",
        **more: Any,
    ) -> None:
        """Start a container without a subscriber."""
        self.runtime.start(
            f"uid-{pod}",
            name,
            state=ContainerState(state),
            **more,
        )

    def subscribe(self, pod: int = 1, name: str = "main", times: int = 1) -> None:
        for _ in range(times):
            unsubscribe = self.watcher.subscribe(
                f"uid-{pod}",
                name,
                lambda: self.heard.append(pod),
            )
            self._subscribed.append(unsubscribe)

    def unsubscribe(self) -> None:
        unsubscribe = self._subscribed.pop()
        unsubscribe()

    def start(self, pod: int = 1, name: str = "main", **more: Any) -> None:
        """Start a container and subscribe to it."""
        self.run(pod, name, **more)
        self.subscribe(pod, name)

    def start_many(self, pods: int, pause: float = 0.0) -> None:
        """Start a container in each of so many pods, with a pause between them."""
        for pod in range(pods):
            if pause:
                asyncio.get_running_loop().call_later(pod * pause, self.start, pod)
            else:
                self.start(pod)

    def change(self, container: int, state: str = "Exited") -> None:
        changed = self.runtime.containers[f"container-{container}"]
        changed.started_at = changed.created_at
        changed.state = ContainerState(state)

    def remove(self) -> None:
        self._removed = self.runtime.containers["container-0"]
        self.runtime.remove(self._removed)

    def put_back(self) -> None:
        self.runtime.containers["container-0"] = self._removed

    def set_address(self, ip: str) -> None:
        self.runtime.sandboxes["sandbox-uid-1"] = PodSandboxStatus((ip,), False)

    def fail(self, call: str, gone: bool = False) -> None:
        """Let a call fail until `mend`."""
        self.runtime.failures[SHORT[call]] = ContainerNotFound("gone") if gone else REFUSED

    def mend(self) -> None:
        self.runtime.failures.clear()

    def deaf(self, id: str, patience: float = 0.0) -> None:
        self.runtime.deaf = id
        self.runtime.patience = patience


def compare(node: Node, row: Json) -> None:
    for pod, view in row.get("views", {}).items():
        assert node.view(pod) == view, row
    for call, expected in row.get("calls", {}).items():
        calls = node.runtime.calls[SHORT.get(call, call)]
        if isinstance(expected, range):
            assert calls in expected, (row, call)
        else:
            assert calls == expected, (row, call)
    assert row.get("heard") in (None, node.heard), row
    assert row.get("available") in (None, node.watcher.available), row


@pytest.mark.parametrize("rows", TIMELINES.values(), ids=TIMELINES)
async def test_timeline_of_the_containers(rows: list[Json]) -> None:
    node = Node()
    now = 0.0
    with no_failed_callback():
        async with background(node.watcher.run()):
            await asyncio.sleep(0.001)
            for row in rows:
                await asyncio.sleep(row["at"] - now)
                now = row["at"]
                compare(node, row)
                node.heard.clear()
                node.runtime.calls.clear()
                for step in row.get("do", ()):
                    for action, arguments in step.items():
                        act = getattr(node, action)
                        act(**arguments)


async def test_at_most_eight_status_calls_of_containers_are_in_flight() -> None:
    node = Node()
    node.runtime.seconds = 0.1
    async with background(node.watcher.run()):
        node.start_many(20)
        await asyncio.sleep(2)
        assert node.runtime.most == 8
        assert all(node.view(pod) for pod in range(20))


async def test_the_pause_between_retries_doubles_up_to_two_seconds_and_starts_again() -> None:
    node = Node()
    listed: list[int] = []
    async with background(node.watcher.run()):
        for _ in range(2):
            node.fail("list")
            await asyncio.sleep(16)
            node.runtime.calls.clear()
            await asyncio.sleep(20)
            listed.append(node.runtime.calls["ListContainers"])
            node.mend()
            await asyncio.sleep(5)
    assert listed == [10, 10]


@cases("deaf after", a_response=("", 1.5), no_response=("container-0", 3.5))
async def test_a_container_is_known_once_its_status_calls_have_returned(
    deaf: str, after: float
) -> None:
    node = Node()
    node.runtime.seconds = 1.0
    node.deaf(deaf, patience=3.0)
    node.start()

    def found() -> ContainerView | None:
        return node.watcher.find("uid-1", "main")

    assert found() is None
    async with background(node.watcher.run()):
        await asyncio.sleep(0.5)
        assert found() is None
        await asyncio.sleep(after - 0.5)
        assert found() is not None


async def test_runtime_unavailable_at_the_start_is_logged_once() -> None:
    node = Node()
    node.fail("list")
    node.subscribe()
    with capture_logs() as logs:
        async with background(node.watcher.run()):
            await asyncio.sleep(60)
            (warning,) = logs
            assert node.heard == [1], "why is known now"
            assert warning["log_level"] == "warning"
            assert warning["error"] == "connection refused"
            node.mend()
            await asyncio.sleep(60)
    levels = [log["log_level"] for log in logs]
    assert [level for level in levels if level != "debug"] == ["warning", "info"]
    assert node.heard == [1, 1]


RUNNING = ContainerState.RUNNING


def container(
    id: str,
    attempt: int,
    created: int,
    uid: str = "uid",
    sandbox: str = "s",
    state: ContainerState = ContainerState.EXITED,
) -> RuntimeContainer:
    return RuntimeContainer(id, "main", uid, sandbox, state, created, attempt)


@cases(
    "containers",
    the_last_attempt_and_of_it_the_youngest=[
        container("first", 0, 3),
        container("second", 1, 1),
        container("newest", 1, 2),
        container("no pod's", 9, 1, uid=""),
    ],
    one_that_runs_in_a_new_sandbox=[
        container("old", 0, 1, sandbox="old"),
        container("last of the old", 5, 2, sandbox="old"),
        container("before it", 0, 3, sandbox="new"),
        container("newest", 1, 4, sandbox="new", state=RUNNING),
    ],
    one_that_runs_before_one_that_was_only_created=[
        container("newest", 0, 1, state=RUNNING),
        container("created", 1, 1, state=ContainerState.CREATED),
    ],
)
@given(data=st.data())
def test_newest_container_of_a_name(
    containers: list[RuntimeContainer], data: st.DataObject
) -> None:
    chosen = newest(data.draw(st.permutations(containers)))
    ids = {key: found.id for key, found in chosen.items()}
    assert ids == {ContainerKey("uid", "main"): "newest"}
