"""How late the event loop is."""

import asyncio

from kruise_probe.serving.loop_lag import LoopLag


async def test_a_loop_that_is_on_time_is_healthy() -> None:
    lag = LoopLag()
    task = asyncio.create_task(lag.run())
    await asyncio.sleep(60)
    task.cancel()
    await asyncio.wait({task})

    assert lag.seconds < 0.01
    assert lag.check() is None


def test_a_stall_is_unhealthy_and_is_forgotten_after_a_while() -> None:
    lag = LoopLag()
    lag._record(0.001, now=0.0)
    lag._record(6.2, now=10.0)
    during = lag.check()
    lag._record(0.001, now=24.0)
    still = lag.check()
    lag._record(0.002, now=26.0)

    assert during == still == "the event loop was blocked for 6.2 s"
    assert lag.check() is None


def test_the_worst_delay_counts_from_when_it_was() -> None:
    lag = LoopLag()
    lag._record(5.5, now=0.0)
    lag._record(5.6, now=10.0)
    lag._record(0.0, now=20.0)

    assert lag.check() is not None
