import asyncio
import itertools
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.background import background
from support.cases import cases
from support.fake_source import FakeSource, raising, thing
from support.scripted_node import gaps

from kruise_probe.api.errors import (
    BadRequest,
    ConnectionFailed,
    Expired,
    Forbidden,
    KubeError,
    NoResponse,
    NotFound,
    ResponseTooLarge,
    ServerError,
    TooManyRequests,
    Unauthorized,
)
from kruise_probe.api.meta import ApiObject, ListPage
from kruise_probe.informers.attempts import LAST_INTERVAL_SECONDS, Backoff
from kruise_probe.informers.shared_informer import SharedInformer

Source = FakeSource[ApiObject]
Informer = SharedInformer[ApiObject]


def put(source: Source, *names: str) -> None:
    for name in names:
        source.put(thing(name))


@pytest.fixture
def source() -> Source:
    source: Source = FakeSource()
    put(source, "a", "b", "c")
    return source


@asynccontextmanager
async def running(source: Source, *, for_seconds: float = 0.1) -> AsyncIterator[Informer]:
    """Runs an informer for so long, then the body, then cancels it."""
    informer = SharedInformer(source, name="things")
    async with background(informer.run()) as task:
        await asyncio.sleep(for_seconds)
        yield informer
        assert not task.done()


def assert_equal_to(source: Source, informer: Informer) -> None:
    assert {cached.key: cached for cached in informer.lister.list()} == source.objects


async def assert_equal_after(seconds: float, source: Source, informer: Informer) -> None:
    await asyncio.sleep(seconds)
    assert_equal_to(source, informer)


def verbs(source: Source) -> list[str]:
    """The verbs of all requests, in order. `stream` is a streaming list."""
    return ["stream" if request.streamed else request.verb for request in source.requests]


def failing(*errors: Exception) -> Callable[[], None]:
    """A hook that raises these in turn, and then nothing."""
    left: Iterator[Exception] = iter(errors)

    def hook() -> None:
        for error in left:
            raise error

    return hook


async def test_c8_a_list_is_streamed_by_one_request(source: Source) -> None:
    async with running(source) as informer:
        assert informer.has_synced
    assert_equal_to(source, informer)
    assert verbs(source) == ["stream"]


async def test_c8_a_list_comes_in_pages_if_the_server_refuses_to_stream(source: Source) -> None:
    source.streams = False
    source.page_size = 3
    async with running(source) as informer:
        put(source, "d")
        await assert_equal_after(0.1, source, informer)
        source.compact()
        put(source, "e")
        source.drop_watches(Expired("too old"))
        await assert_equal_after(5, source, informer)
    assert verbs(source) == ["stream", "list", "watch", "list", "list", "watch"]
    assert [request.limit for request in source.requests] == [0, 500, 0, 500, 500, 0]


@cases(
    "largest limits",
    seven_fit=(7, [500, 62, 7]),
    none_fits=(0, [500, 62, 7, 1, 500]),
)
async def test_pages_shrink_until_the_server_accepts_them(
    source: Source, largest: int, limits: list[int]
) -> None:
    """Tenants decide how large their objects are. One too large for a page of its own is reported, with backoff."""

    def refuse_large_pages() -> None:
        if source.requests[-1].limit > largest:
            raise ResponseTooLarge("the body exceeds the limit")

    source.streams = False
    source.on_list = refuse_large_pages
    async with running(source, for_seconds=60) as informer:
        assert informer.has_synced is (largest > 0)
        assert informer.last_error == ("" if largest else "the body exceeds the limit")
    lists = [request.limit for request in source.requests if request.verb == "list"]
    assert lists[:5] == limits
    assert len(lists) < 60


async def test_c8_changes_during_a_streaming_list_are_applied(source: Source) -> None:
    source.ends_initial_events = False
    async with running(source) as informer:
        assert len(informer.lister.list()) == 3
        source.delete(thing("a").key)
        put(source, "b", "d")
        await asyncio.sleep(0.1)
        assert not informer.has_synced
        source.bookmark(ends_initial_events=True)
        await asyncio.sleep(0.1)
        assert informer.has_synced
        assert_equal_to(source, informer)
    assert source.lists == 1


@pytest.mark.parametrize("changes", [False, True])
async def test_c9_a_streaming_list_that_never_completes_is_cancelled_within_30_s(
    source: Source, changes: bool
) -> None:
    """Changes do not extend it."""
    source.ends_initial_events = False

    async def churn() -> None:
        while changes:
            put(source, "a")
            await asyncio.sleep(1)

    with capture_logs() as logs:
        async with background(churn()), running(source, for_seconds=31) as informer:
            assert informer.has_synced
            assert_equal_to(source, informer)
    reasons = [entry["reason"] for entry in logs if entry["event"] == "relisting"]
    assert reasons == ["the streaming list did not complete in time"]
    assert verbs(source).count("stream") == 1


async def test_c9_a_slow_streaming_list_with_events_is_not_cancelled(source: Source) -> None:
    source.ends_initial_events = False

    async def finish() -> None:
        for _ in range(7):
            await asyncio.sleep(2.5)
            put(source, "slow")
        _, last = source._history[-1]
        source._send(last._replace(initial_events_end=True))

    async with background(finish()), running(source, for_seconds=25) as informer:
        assert informer.has_synced
    assert len(source.requests) == 1


@pytest.mark.parametrize("inside", [False, True])
@cases(
    "error",
    no_connection=ConnectionFailed("refused"),
    unauthorized=Unauthorized("no"),
    forbidden=Forbidden("no"),
    not_found=NotFound("no such resource"),
    too_many_requests=TooManyRequests("later"),
    server_error=ServerError("storage is (re)initializing"),
    no_streams_through_the_proxy=ServerError("no streams", code=501),
    expired=Expired("too old"),
    invalid=BadRequest("no"),
)
async def test_c8_a_streamed_list_that_failed_is_followed_by_pages_and_the_next_one_is_streamed(
    source: Source, error: KubeError, inside: bool
) -> None:
    if inside:
        source.ends_initial_events = False
    else:
        source.on_watch = failing(error)
    async with running(source) as informer:
        source.ends_initial_events = True
        if inside:
            source.drop_watches(error)
        await assert_equal_after(5, source, informer)
        source.drop_watches()
        await asyncio.sleep(60)
        source.drop_watches(Expired("too old"))
        await assert_equal_after(30, source, informer)
    assert verbs(source) == ["stream", "list", "watch", "watch", "stream"]


async def test_an_expired_continue_token_causes_a_list_at_once(source: Source) -> None:
    source.streams = False
    source.page_size = 2

    def compact_after_first_page() -> None:
        if source.requests[-1].continued:
            source.compact()

    source.on_list = compact_after_first_page
    async with running(source, for_seconds=5) as informer:
        assert informer.has_synced
    assert_equal_to(source, informer)
    limits = [request.limit for request in source.requests if request.verb == "list"]
    assert limits == [500, 500, 0]


async def test_an_unfinished_list_is_retried_and_not_synced(source: Source) -> None:
    source.streams = False
    source.page_size = 2

    def fail_second_page() -> None:
        if source.requests[-1].continued:
            source.on_list = lambda: None
            raise ConnectionFailed("reset")

    source.on_list = fail_second_page
    async with running(source, for_seconds=0.2) as informer:
        assert not informer.has_synced
        assert len(informer.lister.list()) == 2
        await asyncio.sleep(5)
        assert informer.has_synced
    assert_equal_to(source, informer)


async def test_a_watch_that_ends_normally_continues_at_its_last_version(source: Source) -> None:
    async with running(source, for_seconds=1000) as informer:
        put(source, "late")
        await assert_equal_after(1, source, informer)
    assert source.lists == 1
    assert 2 <= len(source.requests) <= 4
    lasted = gaps([request.at for request in source.requests])
    assert all(300 <= seconds <= 600 for seconds in lasted)


async def test_a_version_from_the_future_is_dropped_after_a_silent_watch(source: Source) -> None:
    async with running(source, for_seconds=61) as informer:
        source.restore(version=3)
        put(source, "restored")
        source.delete(thing("a").key)
        await assert_equal_after(80, source, informer)
        put(source, "later")
        await assert_equal_after(1, source, informer)
    assert verbs(source) == ["stream", "watch", "list", "watch"]
    assert [request.resource_version for request in source.requests[1:]] == ["13", "", "5"]


async def test_a_proxy_that_holds_streams_back_gets_a_list_after_one_attempt() -> None:
    held = HeldStreams()
    put(held, "a")
    async with running(held, for_seconds=35) as informer:
        assert_equal_to(held, informer)
        put(held, "b")
        await assert_equal_after(70, held, informer)
    assert verbs(held)[:2] == ["stream", "list"]


async def test_a_watch_that_exceeds_its_timeout_is_cancelled(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = source.watch

    def endless_watch(**options: Any) -> object:
        return watch(**options | {"timeout_seconds": 10**6})

    monkeypatch.setattr(source, "watch", endless_watch)
    async with running(source, for_seconds=640):
        assert len(source.requests) == 2
        assert source.lists == 1


@cases("streams", streamed=True, paged=False)
@cases("expired", in_order=False, with_410=True)
async def test_c3_a_server_that_ends_each_watch_at_once_gets_ten_requests_in_10_s(
    source: Source, expired: bool, streams: bool
) -> None:
    source.streams = streams
    if expired:
        source.on_watch = raising(Expired("too old"))
    else:
        source.ends_watches_at_once = True
    async with running(source, for_seconds=10) as informer:
        assert len(source.requests) <= 10
        assert informer.has_synced
        assert_equal_to(source, informer)


def outage(source: Source, error: Exception, *, times: int = 1) -> None:
    """All watches end, and the next ones are refused."""
    source.on_watch = failing(*[error] * times)
    source.drop_watches(ConnectionFailed("reset"))


TOO_LARGE = ServerError("Too large resource version: 99, current: 12", code=504)


def dropped(error: Exception) -> Callable[[Source], None]:
    """All watches end with this error."""
    return lambda source: source.drop_watches(error)


@cases(
    "fault within_seconds compacted lists",
    no_data=(FakeSource.black_hole, 75, False, 1),
    no_data_and_compaction=(FakeSource.black_hole, 80, True, 2),
    outage=(lambda source: outage(source, ConnectionFailed("no"), times=6), 80, False, 1),
    version_never_accepted=(lambda source: outage(source, TOO_LARGE, times=3), 20, False, 2),
    timeout=(dropped(TimeoutError()), 10, False, 1),
    unauthorized=(dropped(Unauthorized("expired")), 10, False, 1),
    too_many_requests=(dropped(TooManyRequests("later")), 10, False, 1),
    server_error=(dropped(ServerError("etcd")), 10, False, 1),
    expired=(dropped(Expired("too old")), 10, False, 2),
    bad_request=(dropped(BadRequest("invalid version")), 10, False, 2),
)
async def test_c1_changes_during_a_fault_are_not_lost_and_only_an_invalid_version_causes_a_list(
    source: Source,
    fault: Callable[[Source], None],
    within_seconds: float,
    compacted: bool,
    lists: int,
) -> None:
    async with running(source, for_seconds=61) as informer:
        fault(source)
        put(source, "b", "new")
        source.delete(thing("a").key)
        if compacted:
            source.compact()
        await assert_equal_after(within_seconds, source, informer)
    assert source.lists == lists
    if lists == 1:
        versions = {request.resource_version for request in source.requests[1:3]}
        assert len(versions) == 1


async def test_c4_a_version_that_expired_in_an_outage_is_relisted_when_it_ends(
    source: Source,
) -> None:
    async with running(source, for_seconds=90) as informer:
        outage(source, ConnectionFailed("refused"), times=5)
        put(source, "meanwhile")
        source.compact()
        await assert_equal_after(80, source, informer)
    assert verbs(source)[-2:] == ["watch", "stream"]
    refused, listed = source.requests[-2:]
    assert listed.at == refused.at


async def test_retry_after_of_the_server_is_the_minimum_delay(source: Source) -> None:
    source.on_watch = failing(TooManyRequests("later", retry_after_seconds=20))
    async with running(source, for_seconds=80) as informer:
        assert informer.has_synced
    refused, listed, _ = source.requests
    assert 20 <= listed.at - refused.at <= 24


async def test_a_version_that_fails_after_each_acceptance_is_dropped(source: Source) -> None:
    def end_plain_watches() -> None:
        if not source.requests[-1].streamed:
            loop = asyncio.get_running_loop()
            loop.call_soon(
                source.drop_watches,
                ServerError("etcd is unavailable"),
            )

    async with running(source, for_seconds=61) as informer:
        source.on_watch = end_plain_watches
        source.drop_watches()
        await assert_equal_after(20, source, informer)
    assert verbs(source)[:5] == ["stream", "watch", "watch", "watch", "list"]


async def test_the_resource_version_never_goes_back(source: Source) -> None:
    async with running(source) as informer:
        _, old = source._history[0]
        put(source, "d")
        source._send(old)
        await asyncio.sleep(1)
        source.drop_watches()
        await assert_equal_after(5, source, informer)
        assert source.requests[-1].resource_version == source.resource_version


class Slow(FakeSource[ApiObject]):
    """A watch opens after `opens_after` seconds; the first page of a list takes 5 s, and the next one never comes."""

    opens_after = 0.0

    @asynccontextmanager
    async def watch(self, **options: Any) -> AsyncIterator[Any]:
        await asyncio.sleep(self.opens_after)
        async with super().watch(**options) as events:
            yield events

    async def list_page(self, **options: Any) -> ListPage[ApiObject]:
        await asyncio.sleep(3600 if options["continue_token"] else 5)
        return await super().list_page(**options)


class HeldStreams(FakeSource[ApiObject]):
    """Behind a proxy that holds a response back until it is complete."""

    @asynccontextmanager
    async def watch(self, **options: Any) -> AsyncIterator[Any]:
        async with super().watch(**options):
            await asyncio.sleep(30)
            raise NoResponse("no response within 30 s")
            yield


async def test_everything_that_the_server_sends_is_activity(source: Source) -> None:
    source.ends_initial_events = False
    async with running(source, for_seconds=5) as informer:
        assert informer.seconds_since_activity() == 5
        put(source, "d")
        await asyncio.sleep(1)
        assert informer.seconds_since_activity() == 1
        source.bookmark(ends_initial_events=True)
        await asyncio.sleep(2)
        assert informer.seconds_since_activity() == 2


async def test_each_page_is_activity() -> None:
    slow = Slow()
    slow.streams = False
    slow.page_size = 1
    put(slow, "a", "b")
    async with running(slow, for_seconds=7) as paged:
        assert not paged.has_synced
        assert paged.seconds_since_activity() == pytest.approx(2)


async def test_an_outage_is_reported_and_ends_at_most_30_s_after_its_cause(source: Source) -> None:
    async with running(source) as informer:
        source.on_watch = raising(ConnectionFailed("connection refused"))
        source.drop_watches(ConnectionFailed("reset"))
        await asyncio.sleep(3600)
        assert informer.seconds_since_activity() > 3599
        assert informer.last_error == "connection refused"
        assert informer.seconds_since_outage() == 0
        source.on_watch = lambda: None
        put(source, "meanwhile")
        await assert_equal_after(30.1, source, informer)
        assert informer.last_error == ""
        assert 0 < informer.seconds_since_outage() <= 31


@cases(
    "error outage",
    forbidden=(Forbidden("no"), False),
    expired=(Expired("old"), False),
    server_error=(ServerError("no"), True),
    too_many_requests=(TooManyRequests("no"), True),
    no_connection=(ConnectionFailed("no"), True),
)
async def test_a_refusal_is_no_outage_but_an_overloaded_server_is(
    source: Source, error: KubeError, outage: bool
) -> None:
    async with running(source) as informer:
        await asyncio.sleep(50)
        source.on_watch = source.on_list = raising(error)
        source.drop_watches()
        await asyncio.sleep(1)
        assert (informer.seconds_since_outage() == 0) is outage


async def test_a_request_without_a_response_for_seconds_is_an_outage() -> None:
    source = Slow()
    source.opens_after = 8.0
    async with running(source, for_seconds=4) as informer:
        assert informer.seconds_since_activity() == 4
        assert informer.seconds_since_outage() == math.inf
        await asyncio.sleep(3.9)
        assert informer.seconds_since_outage() == 0
        await asyncio.sleep(3.1)
        assert informer.seconds_since_outage() == pytest.approx(3)


async def test_lists_of_versions_that_expire_after_their_first_watch_back_off(
    source: Source,
) -> None:
    """The next list need not wait for a backoff, but keeps its interval to the last list."""
    source.streams = False
    refused = itertools.cycle([False, True])

    def expire_every_second_watch() -> None:
        if not source.requests[-1].streamed and next(refused):
            raise Expired("too old")

    source.on_watch = expire_every_second_watch
    source.ends_watches_at_once = True
    async with running(source, for_seconds=600):
        assert source.lists <= 60


@cases(
    "error level event",
    expired=(Expired("too old"), "info", "relisting"),
    connection=(ConnectionFailed("reset"), "warning", "watch failed"),
    forbidden=(Forbidden("no"), "warning", "watch failed"),
    os=(OSError("no route"), "warning", "watch failed"),
    timeout=(TimeoutError("late"), "warning", "watch failed"),
    bug=(KeyError("bug"), "error", "reflector failed"),
)
async def test_the_kind_of_error_decides_how_it_is_logged(
    source: Source,
    error: Exception,
    level: str,
    event: str,
) -> None:
    with capture_logs() as logs:
        async with running(source) as informer:
            source.on_watch = failing(error)
            source.drop_watches(ConnectionFailed("first"))
            await asyncio.sleep(10)
    assert (level, event) in [(line["log_level"], line["event"]) for line in logs]
    assert informer.last_error == ""


def ten_delays(backoff: Backoff) -> list[float]:
    return [backoff.delay_after(0) for _ in range(10)]


def test_c3_delays_grow_from_under_2_s_to_at_most_30_s_with_jitter() -> None:
    first, second, *_, last = ten_delays(Backoff())
    assert 0.8 <= first <= 1.6 <= second <= 3.2
    assert 15 <= last <= LAST_INTERVAL_SECONDS
    last_delays = {round(ten_delays(Backoff())[-1], 3) for _ in range(20)}
    assert len(last_delays) > 10


@pytest.mark.parametrize(("lasted", "healed"), [(60, True), (59, False)])
def test_only_an_attempt_of_a_minute_resets_the_backoff(lasted: float, healed: bool) -> None:
    backoff = Backoff()
    ten_delays(backoff)
    assert backoff.delay_after(lasted) == 0
    assert (backoff.delay_after(0) <= 1.6) is healed
