import asyncio

from support.background import background
from support.fake_source import FakeSource, raising

from kruise_probe.api.errors import ConnectionFailed
from kruise_probe.api.meta import ApiObject
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.serving.health import MAX_INACTIVITY_SECONDS, Checks


async def test_a_cache_is_unready_until_it_syncs_and_after_a_long_time_without_activity() -> None:
    source: FakeSource[ApiObject] = FakeSource()
    informer = SharedInformer(source, name="things")
    ready = Checks()
    ready.add_cache(informer)
    problems = await ready.run()
    assert list(problems.values()) == ["not synced: no response yet", None]
    async with background(informer.run()):
        await informer.wait_for_sync()
        source.on_watch = raising(ConnectionFailed("refused"))
        source.drop_watches()
        await asyncio.sleep(MAX_INACTIVITY_SECONDS - 1)
        problems = await ready.run()
        assert list(problems.values()) == [None, None]
        await asyncio.sleep(2)
        problems = await ready.run()
    stale = "no activity for 141 s; at most 140 s are healthy"
    assert list(problems.values()) == [None, stale]
