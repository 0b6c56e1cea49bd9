import asyncio

import pytest
from support.background import background
from support.cases import cases
from support.fake_source import FakeSource, RecordingHandler, thing

from kruise_probe.api.meta import ApiObject, NamespacedName
from kruise_probe.informers.shared_informer import SharedInformer

Source = FakeSource[ApiObject]


@pytest.fixture
def source() -> Source:
    source: Source = FakeSource()
    for name in "ab":
        source.put(thing(name))
    return source


async def test_handlers_get_all_events_in_order_and_a_later_one_what_is_stored(
    source: Source,
) -> None:
    informer = SharedInformer(source, name="things")
    recorder = RecordingHandler()
    later = RecordingHandler()
    informer.add_event_handler(recorder)
    assert not informer.has_synced
    async with background(informer.run()):
        await informer.wait_for_sync()
        assert recorder.calls == ["initial a", "initial b"]
        source.put(thing("c"))
        source.put(thing("a"))
        source.delete(NamespacedName("ns", "b"))
        await asyncio.sleep(1)
        informer.add_event_handler(later)
        source.put(thing("d"))
        await asyncio.sleep(1)
    assert recorder.calls == ["initial a", "initial b", "add c", "update a", "delete b", "add d"]
    assert later.calls == ["initial a", "initial c", "add d"]


@cases(
    "resync_seconds resyncs",
    never_by_default=(0, 0),
    each_period=(600, 2 * 2),
    below_a_second=(0.9, 2 * 1666),
)
async def test_c14_a_resync_calls_handlers_for_every_object(
    source: Source, resync_seconds: float, resyncs: int
) -> None:
    informer = SharedInformer(source, name="things", resync_seconds=resync_seconds)
    recorder = RecordingHandler()
    informer.add_event_handler(recorder)
    async with background(informer.run()):
        await asyncio.sleep(1500)
    assert sum(call.startswith("resync") for call in recorder.calls) == resyncs


async def test_a_resync_of_many_objects_yields_to_the_event_loop() -> None:
    source: Source = FakeSource()
    for number in range(1024):
        source.put(thing(str(number)))
    informer = SharedInformer(source, name="things", resync_seconds=10)
    recorder = RecordingHandler()
    async with background(informer.run()):
        await informer.wait_for_sync()
        informer.add_event_handler(recorder)
        recorder.calls.clear()
        await asyncio.sleep(10 - asyncio.get_running_loop().time())
        source.put(thing("1023"))
        seen = []
        while "resync 1022" not in recorder.calls:
            seen.append(len(recorder.calls))
            await asyncio.sleep(0)
    assert len(set(seen)) >= 3
    assert "resync 1023" in recorder.calls, "as the object is when its turn comes"
    assert asyncio.get_running_loop().time() == 10, "a yield takes no time"
