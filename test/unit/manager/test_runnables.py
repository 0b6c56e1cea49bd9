import asyncio
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from kruise_probe.manager.runnables import Elector, ManagerError, Runnables


class Part:
    """A runnable that records its start and its end, and fails or hangs on request."""

    def __init__(
        self,
        name: str,
        journal: list[str],
        *,
        error: Exception | None = None,
        ends_after: float | None = None,
        hangs: bool = False,
    ) -> None:
        self.name = name
        self._journal = journal
        self._error = error
        self._ends_after = ends_after
        self._hangs = hangs
        self.release = asyncio.Event()

    async def run(self) -> None:
        self._journal.append(f"+{self.name}")
        try:
            await self._work()
        finally:
            while self._hangs and not self.release.is_set():
                try:
                    await self.release.wait()
                except asyncio.CancelledError:
                    continue
            self._journal.append(f"-{self.name}")

    async def _work(self) -> None:
        await asyncio.sleep(10**6 if self._ends_after is None else self._ends_after)
        if self._error is not None:
            raise self._error


class CachePart(Part):
    """A cache that syncs after a while, or never."""

    def __init__(
        self,
        name: str,
        journal: list[str],
        *,
        syncs_after: float | None = 1,
        error: Exception | None = None,
        hangs: bool = False,
    ) -> None:
        super().__init__(name, journal, error=error, ends_after=2 if error else None, hangs=hangs)
        self.has_synced = False
        self.last_error = "connection refused"
        self._syncs_after = syncs_after

    async def wait_for_sync(self) -> None:
        await asyncio.sleep(10**6 if self._syncs_after is None else self._syncs_after)
        self.has_synced = True
        self._journal.append(f"synced {self.name}")


class Election:
    """An elector that elects after a while, may lose the lease, and records its release."""

    def __init__(
        self, journal: list[str], *, elects_after: float = 1, loses_after: float | None = None
    ) -> None:
        self._journal = journal
        self._elects_after = elects_after
        self._loses_after = loses_after

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        self._journal.append("+election")
        try:
            await asyncio.sleep(self._elects_after)
            self._journal.append("elected")
            async with asyncio.timeout(self._loses_after):
                await lead()
        except TimeoutError:
            raise RuntimeError("the lease was not renewed in time") from None
        finally:
            self._journal.append("released")


class Parts:
    def __init__(self) -> None:
        self.journal: list[str] = []
        self.service = Part("health", self.journal)
        self.cache: CachePart = CachePart("pods", self.journal)
        self.controller = Part("nodes", self.journal)
        self.elector: Elector | None = Election(self.journal)

    def manager(self) -> Runnables:
        return Runnables(
            services=[self.service],
            caches=[self.cache],
            controllers=[self.controller],
            elector=self.elector,
            cache_sync_timeout_seconds=120,
        )

    def unhang(self) -> None:
        for part in (self.service, self.cache, self.controller):
            part.release.set()


@pytest.fixture
def parts() -> Parts:
    return Parts()


async def run_and_stop(manager: Runnables, *, after: float = 10) -> float:
    """Runs the manager, cancels it, and returns the seconds until it ended."""
    time = asyncio.get_running_loop().time
    running = asyncio.create_task(manager.run())
    await asyncio.sleep(after)
    stopped_at = time()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    return time() - stopped_at


async def test_parts_start_in_order_and_stop_in_reverse(parts: Parts) -> None:
    await run_and_stop(parts.manager())
    assert parts.journal == [
        "+health",
        "+pods",
        "synced pods",
        "+election",
        "elected",
        "+nodes",
        "-nodes",
        "released",
        "-pods",
        "-health",
    ]


async def test_without_election_controllers_start_when_caches_have_synced(parts: Parts) -> None:
    parts.elector = None
    await run_and_stop(parts.manager())
    assert parts.journal[:4] == ["+health", "+pods", "synced pods", "+nodes"]


async def test_d7_a_standby_has_warm_caches_and_no_controllers(parts: Parts) -> None:
    parts.elector = Election(parts.journal, elects_after=1000)
    await run_and_stop(parts.manager(), after=900)
    assert "synced pods" in parts.journal
    assert "+nodes" not in parts.journal


async def test_a_stop_before_caches_have_synced_is_clean(parts: Parts) -> None:
    parts.cache = CachePart("pods", parts.journal, syncs_after=None)
    await run_and_stop(parts.manager(), after=5)
    assert parts.journal == ["+health", "+pods", "-pods", "-health"]


async def test_a_healthy_stop_takes_no_time(parts: Parts) -> None:
    assert await run_and_stop(parts.manager()) < 0.1


async def test_c13_stopping_takes_at_most_5_s_if_everything_hangs(
    parts: Parts,
) -> None:
    parts.service = Part("health", parts.journal, hangs=True)
    parts.cache = CachePart("pods", parts.journal, hangs=True)
    parts.controller = Part("nodes", parts.journal, hangs=True)
    with capture_logs() as logs:
        assert await run_and_stop(parts.manager()) < 5
    hung = [name for each in logs for name in each.get("hung", ())]
    assert hung == ["leading", "pods", "health"]
    assert "released" not in parts.journal, "a lease is kept while its controllers still run"
    parts.unhang()
    await asyncio.sleep(1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            lambda p: setattr(
                p, "service", Part("health", p.journal, error=OSError("port taken"), ends_after=0)
            ),
            "health failed: port taken",
            id="a-service-fails-before-the-caches-sync",
        ),
        pytest.param(
            lambda p: setattr(p, "service", Part("health", p.journal, ends_after=50)),
            "health ended",
            id="a-service-ends",
        ),
        pytest.param(
            lambda p: setattr(p, "cache", CachePart("pods", p.journal, error=ValueError("bad"))),
            "pods failed: bad",
            id="a-cache-fails",
        ),
        pytest.param(
            lambda p: setattr(p, "controller", Part("nodes", p.journal, ends_after=50)),
            "nodes ended",
            id="a-controller-ends",
        ),
        pytest.param(
            lambda p: setattr(
                p, "controller", Part("nodes", p.journal, error=KeyError("x"), ends_after=50)
            ),
            "nodes failed: 'x'",
            id="a-controller-fails",
        ),
        pytest.param(
            lambda p: setattr(
                p, "controller", Part("nodes", p.journal, error=TimeoutError(), ends_after=50)
            ),
            "nodes failed: TimeoutError",
            id="a-controller-fails-without-a-message",
        ),
        pytest.param(
            lambda p: setattr(
                p,
                "service",
                Part(
                    "health",
                    p.journal,
                    error=ExceptionGroup("many", [OSError("first\nline"), OSError("second")]),
                    ends_after=5,
                ),
            ),
            "health failed: first",
            id="a-group-of-errors-is-reported-by-its-first-line",
        ),
    ],
)
@pytest.mark.parametrize("elects", [True, False], ids=["elected", "without-election"])
async def test_c1_the_end_of_a_core_task_ends_the_manager_with_one_line(
    parts: Parts, change: Callable[[Parts], None], message: str, elects: bool
) -> None:
    if not elects:
        parts.elector = None
    change(parts)
    with pytest.raises(ManagerError) as raised:
        await parts.manager().run()
    assert str(raised.value) == message
    starts = [each[1:] for each in parts.journal if each[0] == "+" and each != "+election"]
    ends = [each[1:] for each in parts.journal if each[0] == "-"]
    assert sorted(starts) == sorted(ends), "everything that had started was stopped"


async def test_c1_a_lost_lease_ends_the_manager_with_one_line(parts: Parts) -> None:
    parts.elector = Election(parts.journal, loses_after=5)
    with pytest.raises(ManagerError) as raised:
        await parts.manager().run()
    assert str(raised.value) == "leader election failed: the lease was not renewed in time"


async def test_caches_that_do_not_sync_in_time_are_reported_with_the_error(
    parts: Parts, looptime: float
) -> None:
    parts.cache = CachePart("pods", parts.journal, syncs_after=None)
    with pytest.raises(ManagerError, match=r"within 120 s: pods \(connection refused\)\. Check"):
        await parts.manager().run()
    assert looptime == 120
    assert parts.journal[-2:] == ["-pods", "-health"]


async def test_an_error_during_the_stop_is_logged(parts: Parts) -> None:
    class Closing(Part):
        async def _work(self) -> None:
            try:
                await super()._work()
            finally:
                raise OSError("disk full")

    parts.service = Closing("health", parts.journal)
    with capture_logs() as logs:
        await run_and_stop(parts.manager())
    errors = [each["error"] for each in logs if each["event"] == "ended with an error"]
    assert errors == ["health failed: disk full"]
    assert not [each for each in logs if each["log_level"] == "warning"]


async def test_a_failing_controller_stops_the_others(parts: Parts) -> None:
    journal = parts.journal
    manager = Runnables(
        services=[],
        caches=[],
        controllers=[
            Part("good", journal),
            Part("bad", journal, error=OSError("no"), ends_after=1),
        ],
        elector=None,
        cache_sync_timeout_seconds=1,
    )
    with pytest.raises(ManagerError, match="bad failed: no"):
        await manager.run()
    assert journal == ["+good", "+bad", "-bad", "-good"]
