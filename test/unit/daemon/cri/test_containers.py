import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from support.background import background
from support.callbacks import no_failed_callback
from support.fake_runtime import ScriptedRuntime

from kruise_probe.daemon.cri.containers import ContainerWatcher
from kruise_probe.daemon.cri.newest import ContainerKey, newest
from kruise_probe.daemon.cri.runtime import (
    ContainerNotFound,
    ContainerState,
    PodSandboxStatus,
    RuntimeContainer,
    RuntimeContainerStatus,
    RuntimeUnavailable,
)


def nothing() -> None:
    pass


async def settle() -> None:
    await asyncio.sleep(0.001)


@pytest.fixture
def runtime() -> ScriptedRuntime:
    return ScriptedRuntime()


@asynccontextmanager
async def watching(runtime: ScriptedRuntime) -> AsyncIterator[ContainerWatcher]:
    watcher = ContainerWatcher(runtime)
    with no_failed_callback():
        async with background(watcher.run()):
            await settle()
            yield watcher


async def test_a_pod_in_the_network_of_the_host_has_no_address(runtime: ScriptedRuntime) -> None:
    async with watching(runtime) as watcher:
        runtime.start("uid-1", "main", host_network=True)
        _ = watcher.subscribe("uid-1", "main", nothing)
        await asyncio.sleep(1)

        view = watcher.find("uid-1", "main")
        assert view is not None
        assert (view.ips, view.host_network) == ((), True)


async def test_at_most_one_list_a_second_for_any_number_of_containers(
    runtime: ScriptedRuntime,
) -> None:
    async with watching(runtime) as watcher:
        for number in range(100):
            runtime.start(f"uid-{number}")
            _ = watcher.subscribe(f"uid-{number}", "main", nothing)
        await asyncio.sleep(0.5)
        runtime.calls.clear()

        await asyncio.sleep(60)

        assert runtime.calls == {"ListContainers": 60}


async def test_one_status_for_each_new_container_and_each_new_sandbox(
    runtime: ScriptedRuntime,
) -> None:
    async with watching(runtime) as watcher:
        first = runtime.start("uid-1")
        runtime.start("uid-1", "sidecar")
        runtime.start("uid-2")
        for uid, name in (("uid-1", "main"), ("uid-1", "sidecar")):
            _ = watcher.subscribe(uid, name, nothing)
        await asyncio.sleep(5)
        assert (runtime.calls["ContainerStatus"], runtime.calls["PodSandboxStatus"]) == (2, 1)

        runtime.stop(first)
        runtime.start("uid-1", attempt=1)
        await asyncio.sleep(5)

        assert (runtime.calls["ContainerStatus"], runtime.calls["PodSandboxStatus"]) == (3, 1)


async def test_at_most_eight_status_calls_of_containers_are_in_flight() -> None:
    class SlowRuntime(ScriptedRuntime):
        in_flight = most = 0

        async def container_status(self, container_id: str) -> RuntimeContainerStatus:
            self.in_flight += 1
            self.most = max(self.most, self.in_flight)
            await asyncio.sleep(0.1)
            self.in_flight -= 1
            return await super().container_status(container_id)

    runtime = SlowRuntime()
    async with watching(runtime) as watcher:
        for number in range(20):
            runtime.start(f"uid-{number}")
            _ = watcher.subscribe(f"uid-{number}", "main", nothing)
        await asyncio.sleep(2)
        assert runtime.most == 8
        assert all(watcher.find(f"uid-{number}", "main") for number in range(20))


async def test_status_of_a_removed_container_and_sandbox_is_forgotten(
    runtime: ScriptedRuntime,
) -> None:
    async with watching(runtime) as watcher:
        container = runtime.start("uid-1")
        _ = watcher.subscribe("uid-1", "main", nothing)
        await asyncio.sleep(2)
        runtime.remove(container)
        await asyncio.sleep(2)
        assert watcher.find("uid-1", "main") is None

        runtime.containers[container.id] = container
        await asyncio.sleep(2)
        assert watcher.find("uid-1", "main")
        assert (runtime.calls["ContainerStatus"], runtime.calls["PodSandboxStatus"]) == (2, 2)


async def test_without_subscribers_one_list_in_fifteen_seconds(runtime: ScriptedRuntime) -> None:
    async with watching(runtime) as watcher:
        runtime.start("uid-1")
        unsubscribe = watcher.subscribe("uid-1", "main", nothing)
        await asyncio.sleep(5)
        unsubscribe()
        await asyncio.sleep(1)
        runtime.calls.clear()

        await asyncio.sleep(60)

        assert runtime.calls == {"ListContainers": 4}
        assert watcher.find("uid-1", "main") is None


async def test_subscribers_are_called_for_their_container_only(
    runtime: ScriptedRuntime,
) -> None:
    async with watching(runtime) as watcher:
        heard: list[str] = []
        runtime.start("uid-1")
        other = runtime.start("uid-2")
        _ = watcher.subscribe("uid-1", "main", lambda: heard.append("uid-1"))
        _ = watcher.subscribe("uid-2", "main", lambda: heard.append("uid-2"))
        await asyncio.sleep(5)
        assert sorted(heard) == ["uid-1", "uid-2"]
        heard.clear()

        runtime.stop(other)
        await asyncio.sleep(5)

        assert heard == ["uid-2"]
        view = watcher.find("uid-2", "main")
        assert view is not None
        assert view.state is ContainerState.EXITED


async def test_a_new_subscriber_of_an_unknown_container_requests_one_list(
    runtime: ScriptedRuntime,
) -> None:
    async with watching(runtime) as watcher:
        await asyncio.sleep(1)
        runtime.calls.clear()
        runtime.start()

        for _ in range(10):
            _ = watcher.subscribe("uid-1", "main", nothing)
        await asyncio.sleep(0.25)

        assert watcher.find("uid-1", "main") is not None
        assert runtime.calls["ListContainers"] == 1


async def test_a_new_subscriber_of_a_listed_container_gets_its_status_at_once(
    runtime: ScriptedRuntime,
) -> None:
    container = runtime.start()
    async with watching(runtime) as watcher:
        runtime.calls.clear()
        _ = watcher.subscribe("uid-1", "main", nothing)
        assert watcher.find("uid-1", "main") is None
        await asyncio.sleep(0.01)

        view = watcher.find("uid-1", "main")
        assert view is not None
        assert view.started_at == container.started_at
        assert runtime.calls == {"ContainerStatus": 1, "PodSandboxStatus": 1}


async def test_new_subscribers_in_succession_share_lists(runtime: ScriptedRuntime) -> None:
    async with watching(runtime) as watcher:
        await asyncio.sleep(1.5)
        runtime.calls.clear()

        for number in range(20):
            runtime.start(f"uid-{number}")
            _ = watcher.subscribe(f"uid-{number}", "main", nothing)
            await asyncio.sleep(0.05)

        assert runtime.calls["ListContainers"] <= 6
        await asyncio.sleep(0.2)
        assert all(watcher.find(f"uid-{number}", "main") for number in range(20))


async def test_created_container_becomes_a_running_one_with_its_start(
    runtime: ScriptedRuntime,
) -> None:
    async with watching(runtime) as watcher:
        container = runtime.start(state=ContainerState.CREATED)
        _ = watcher.subscribe("uid-1", "main", nothing)
        await asyncio.sleep(1)
        assert runtime.calls["ContainerStatus"] == 0

        container.state, container.started_at = ContainerState.RUNNING, container.created_at
        await asyncio.sleep(1.1)

        view = watcher.find("uid-1", "main")
        assert view is not None
        assert view.started_at == container.started_at


async def test_unavailable_runtime_is_retried(runtime: ScriptedRuntime) -> None:
    async with watching(runtime) as watcher:
        heard: list[bool] = []
        runtime.start()
        _ = watcher.subscribe("uid-1", "main", lambda: heard.append(watcher.available))
        await asyncio.sleep(1.5)
        assert watcher.available
        heard.clear()

        runtime.failures["ListContainers"] = RuntimeUnavailable("connection refused")
        runtime.calls.clear()
        await asyncio.sleep(62)
        assert (watcher.available, watcher.problem, heard) == (False, "connection refused", [False])
        assert 25 <= runtime.calls["ListContainers"] <= 40
        del runtime.failures["ListContainers"]
        await asyncio.sleep(2)

        assert watcher.available
        assert heard == [False, True]
        assert watcher.find("uid-1", "main") is not None


async def test_the_pause_between_retries_doubles_up_to_two_seconds_and_starts_again(
    runtime: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    failed: list[float] = []
    list_containers = runtime.list_containers

    async def list_and_note() -> Sequence[RuntimeContainer]:
        try:
            return await list_containers()
        except RuntimeUnavailable:
            failed.append(loop.time())
            raise

    monkeypatch.setattr(runtime, "list_containers", list_and_note)
    async with background(ContainerWatcher(runtime).run()):
        for _ in range(2):
            failed.clear()
            runtime.failures["ListContainers"] = RuntimeUnavailable("connection refused")
            await asyncio.sleep(40)
            pauses = [after - before for before, after in pairwise(failed)]
            assert pauses[:6] == pytest.approx([0.2, 0.4, 0.8, 1.6, 2.0, 2.0])
            del runtime.failures["ListContainers"]
            await asyncio.sleep(5)


@pytest.mark.parametrize("call", ["ContainerStatus", "PodSandboxStatus"])
async def test_a_status_that_keeps_failing_causes_one_list_a_second(
    runtime: ScriptedRuntime, call: str
) -> None:
    async with watching(runtime) as watcher:
        runtime.failures[call] = ContainerNotFound("gone")
        runtime.start()
        _ = watcher.subscribe("uid-1", "main", nothing)
        await asyncio.sleep(0.5)
        runtime.calls.clear()

        await asyncio.sleep(30)

        assert watcher.find("uid-1", "main") is None
        assert runtime.calls["ListContainers"] == 30
        assert runtime.calls[call] == 30
        del runtime.failures[call]
        await asyncio.sleep(1.1)
        assert watcher.find("uid-1", "main") is not None


class PartlyDeaf(ScriptedRuntime):
    """Lists, and gives no status of the container or sandbox of id `deaf`, for `patience` seconds each time."""

    deaf = ""
    patience = 0.0

    async def container_status(self, container_id: str) -> RuntimeContainerStatus:
        await self._listen_for(container_id)
        return await super().container_status(container_id)

    async def sandbox_status(self, sandbox_id: str) -> PodSandboxStatus:
        await self._listen_for(sandbox_id)
        return await super().sandbox_status(sandbox_id)

    async def _listen_for(self, id: str) -> None:
        if id == self.deaf:
            self.calls[id] += 1
            await asyncio.sleep(self.patience)
            raise RuntimeUnavailable(f"no response for {id}")


@pytest.mark.parametrize("deaf", ["container-0", "sandbox-uid-0"])
@pytest.mark.parametrize(
    ("patience", "calls"),
    [pytest.param(0.0, 30, id="fails-at-once"), pytest.param(5.0, 5, id="hangs")],
)
async def test_failed_status_affects_only_its_container(
    deaf: str, patience: float, calls: int
) -> None:
    runtime = PartlyDeaf()
    runtime.deaf, runtime.patience = deaf, patience
    async with watching(runtime) as watcher:
        heard: list[bool] = []
        for number in range(20):
            runtime.start(f"uid-{number}")
            _ = watcher.subscribe(f"uid-{number}", "main", lambda: heard.append(watcher.available))
        await asyncio.sleep(0.5)
        assert all(watcher.find(f"uid-{number}", "main") for number in range(1, 20))
        await asyncio.sleep(5)
        runtime.calls.clear()
        heard.clear()

        for number in range(20, 50):
            new = runtime.start(f"uid-{number}")
            _ = watcher.subscribe(f"uid-{number}", "main", nothing)
            await asyncio.sleep(0.25)
            found = watcher.find(f"uid-{number}", "main")
            assert found is not None
            assert found.started_at == new.started_at
            await asyncio.sleep(0.75)

        assert watcher.available
        assert heard == []
        assert runtime.calls["ListContainers"] <= 60
        assert runtime.calls[deaf] == calls
        view = watcher.find("uid-0", "main")
        assert view is not None
        assert (view.state, view.problem) == (ContainerState.UNKNOWN, f"no response for {deaf}")
        runtime.deaf = ""
        await asyncio.sleep(6.1)
        view = watcher.find("uid-0", "main")
        assert view is not None
        assert (view.state, view.problem) == (ContainerState.RUNNING, "")
        assert view.ips


async def test_a_status_that_is_not_known_yet_delays_no_change_of_another_container() -> None:
    runtime = PartlyDeaf()
    runtime.deaf, runtime.patience = "container-0", 60.0
    async with watching(runtime) as watcher:
        heard: list[str] = []
        _, other = runtime.start("uid-0"), runtime.start("uid-1")
        for uid in ("uid-0", "uid-1"):
            _ = watcher.subscribe(uid, "main", partial(heard.append, uid))
        await asyncio.sleep(2)
        assert heard == ["uid-1"]

        runtime.stop(other)
        await asyncio.sleep(1.1)

        view = watcher.find("uid-1", "main")
        assert view is not None
        assert (view.state, heard) == (ContainerState.EXITED, ["uid-1", "uid-1"])
        assert watcher.find("uid-0", "main") is None


@pytest.mark.parametrize("deaf", ["container-1", "sandbox-new"])
async def test_replaced_container_is_not_shown_while_the_new_one_has_no_status(deaf: str) -> None:
    runtime = PartlyDeaf()
    runtime.deaf, runtime.patience = deaf, 5.0
    async with watching(runtime) as watcher:
        heard: list[bool] = []
        old = runtime.start(ip="10.0.0.1", sandbox_id="sandbox-old")
        _ = watcher.subscribe("uid-1", "main", lambda: heard.append(watcher.available))
        await asyncio.sleep(0.5)
        runtime.stop(old)
        new = runtime.start(ip="10.0.0.2", sandbox_id="sandbox-new")
        runtime.calls.clear()
        heard.clear()
        await asyncio.sleep(3)

        view = watcher.find("uid-1", "main")
        assert view is not None
        assert (view.id, view.state) == (new.id, ContainerState.UNKNOWN)
        assert view.problem == "the runtime has not returned the status of the new container yet"
        assert heard == [True]
        answered = "PodSandboxStatus" if deaf == new.id else "ContainerStatus"
        assert runtime.calls == {"ListContainers": 3, answered: 1, deaf: 1}

        runtime.deaf = ""
        await asyncio.sleep(5)
        view = watcher.find("uid-1", "main")
        assert view is not None
        assert (view.id, view.state) == (new.id, ContainerState.RUNNING)
        assert (view.ips, view.problem) == (("10.0.0.2",), "")


async def test_runtime_that_dies_before_a_status_is_unavailable_at_the_next_list(
    runtime: ScriptedRuntime,
) -> None:
    async with watching(runtime) as watcher:
        runtime.start("uid-1")
        _ = watcher.subscribe("uid-1", "main", nothing)
        await asyncio.sleep(1.5)
        before = watcher.find("uid-1", "main")
        gone = RuntimeUnavailable("connection refused")
        runtime.failures["ContainerStatus"] = gone
        runtime.start("uid-2")
        _ = watcher.subscribe("uid-2", "main", nothing)
        await asyncio.sleep(0.3)
        assert watcher.available

        runtime.failures["ListContainers"] = gone
        await asyncio.sleep(1)

        assert not watcher.available
        assert watcher.find("uid-1", "main") == before
        runtime.calls.clear()
        await asyncio.sleep(30)
        assert runtime.calls["ContainerStatus"] == 0
        runtime.failures.clear()
        await asyncio.sleep(2.1)
        assert watcher.available
        assert watcher.find("uid-1", "main") == before
        view = watcher.find("uid-2", "main")
        assert view is not None
        assert view.state is ContainerState.RUNNING


class TestEventStream:
    """With events, lists follow them."""

    @pytest.fixture
    def runtime(self) -> ScriptedRuntime:
        return ScriptedRuntime(has_events=True)

    async def test_trusted_event_stream_replaces_the_list_per_second(
        self, runtime: ScriptedRuntime
    ) -> None:
        async with watching(runtime) as watcher:
            _ = watcher.subscribe("uid-1", "main", nothing)
            await asyncio.sleep(5.5)
            runtime.calls.clear()
            await asyncio.sleep(10)
            assert runtime.calls["ListContainers"] == 10

            container = runtime.start()
            await asyncio.sleep(1)
            runtime.calls.clear()
            await asyncio.sleep(62)

            assert runtime.calls == {"ListContainers": 4}
            runtime.stop(container)
            await settle()
            view = watcher.find("uid-1", "main")
            assert view is not None
            assert view.state is ContainerState.EXITED

    async def test_a_storm_of_events_is_one_list_a_second(self, runtime: ScriptedRuntime) -> None:
        async with watching(runtime) as watcher:
            _ = watcher.subscribe("uid-1", "main", nothing)
            await asyncio.sleep(2)
            runtime.calls.clear()

            for number in range(200):
                runtime.start(f"other-{number}")
                await asyncio.sleep(0.05)

            assert runtime.calls["ListContainers"] <= 11

    async def test_event_stream_that_missed_a_change_is_not_trusted(
        self, runtime: ScriptedRuntime
    ) -> None:
        async with watching(runtime) as watcher:
            _ = watcher.subscribe("uid-1", "main", nothing)
            await settle()
            container = runtime.start()
            await asyncio.sleep(2)

            runtime.stop(container, silently=True)
            await asyncio.sleep(15)
            runtime.calls.clear()
            await asyncio.sleep(10)

            assert runtime.calls["ListContainers"] == 10

    async def test_a_stream_that_broke_is_not_trusted(self, runtime: ScriptedRuntime) -> None:
        async with watching(runtime) as watcher:
            _ = watcher.subscribe("uid-1", "main", nothing)
            await settle()
            container = runtime.start()
            await asyncio.sleep(3)

            runtime.break_streams()
            await settle()
            runtime.stop(container)
            await asyncio.sleep(1.1)

            view = watcher.find("uid-1", "main")
            assert view is not None
            assert view.state is ContainerState.EXITED

    async def test_a_failed_status_causes_a_list_within_a_second(
        self, runtime: ScriptedRuntime
    ) -> None:
        """The container may be gone, whatever the events are."""
        async with watching(runtime) as watcher:
            for uid in ("uid-1", "uid-2"):
                _ = watcher.subscribe(uid, "main", nothing)
            await settle()
            runtime.start("uid-1")
            await asyncio.sleep(3)
            runtime.calls.clear()
            await asyncio.sleep(10)
            assert runtime.calls["ListContainers"] <= 1

            runtime.calls.clear()
            runtime.failures["ContainerStatus"] = ContainerNotFound("gone")
            runtime.start("uid-2")
            await asyncio.sleep(10.5)
            assert runtime.calls["ListContainers"] >= 10

            del runtime.failures["ContainerStatus"]
            await asyncio.sleep(2)
            runtime.calls.clear()
            await asyncio.sleep(10)
            assert runtime.calls["ListContainers"] <= 1

    async def test_missing_event_stream_is_tried_again_after_ten_minutes(
        self, runtime: ScriptedRuntime
    ) -> None:
        runtime.has_events = False
        async with background(ContainerWatcher(runtime).run()):
            await asyncio.sleep(1500)

        assert runtime.calls["GetContainerEvents"] == 3


async def test_runtime_unavailable_at_the_start_is_logged_once(
    runtime: ScriptedRuntime,
) -> None:
    runtime.failures["ListContainers"] = RuntimeUnavailable("there is no socket at /none")
    watcher, heard = ContainerWatcher(runtime), list[bool]()
    _ = watcher.subscribe("uid-1", "main", lambda: heard.append(watcher.available))
    with capture_logs() as logs:
        async with background(watcher.run()):
            await asyncio.sleep(60)
            (line,) = logs
            assert heard == []
            assert (line["log_level"], line["error"]) == ("warning", "there is no socket at /none")
            runtime.failures.clear()
            await asyncio.sleep(60)

    levels = [each["log_level"] for each in logs if each["log_level"] != "debug"]
    assert levels == ["warning", "info"]
    assert heard == [True]


def info(
    id: str,
    *,
    attempt: int = 0,
    created_at_ns: int = 1,
    uid: str = "uid",
    sandbox: str = "sandbox",
    state: ContainerState = ContainerState.EXITED,
) -> RuntimeContainer:
    return RuntimeContainer(
        id, "main", uid, "default", "pod", sandbox, state, created_at_ns, attempt
    )


@given(
    st.permutations(
        [
            info("first", attempt=0, created_at_ns=3),
            info("second", attempt=1, created_at_ns=1),
            info("twin", attempt=1, created_at_ns=2),
            info("no pod's", attempt=9, uid=""),
        ]
    )
)
def test_newest_is_the_last_attempt_and_of_it_the_youngest(
    containers: list[RuntimeContainer],
) -> None:
    chosen = newest(containers)

    assert {key: container.id for key, container in chosen.items()} == {
        ContainerKey("uid", "main"): "twin"
    }


@given(
    st.permutations(
        [
            info("old", attempt=0, created_at_ns=1, sandbox="old"),
            info("last of the old", attempt=5, created_at_ns=2, sandbox="old"),
            info("before it", attempt=0, created_at_ns=3, sandbox="new"),
            info("runs", attempt=1, created_at_ns=4, sandbox="new", state=ContainerState.RUNNING),
        ]
    )
)
def test_a_container_running_in_a_new_sandbox_is_newer_than_those_of_the_old(
    containers: list[RuntimeContainer],
) -> None:
    assert newest(containers)[ContainerKey("uid", "main")].id == "runs"


def test_running_container_is_not_hidden_by_a_newer_one_that_was_only_created() -> None:
    running = info("running", attempt=0, state=ContainerState.RUNNING)
    created = info("created", attempt=1, state=ContainerState.CREATED)
    assert newest([running, created])[ContainerKey("uid", "main")].id == "running"
