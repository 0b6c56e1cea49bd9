"""Reuse and closing of pooled connections."""

import asyncio
import gc
import weakref
from collections.abc import Callable

import pytest
from support.fake_transport import FakeTransport

from kruise_probe.client.dialer import DialFailed
from kruise_probe.client.http1 import HttpConnection
from kruise_probe.client.pool import Dial, Pool

RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Server:
    """Takes every connection; `others` are its ends of them."""

    def __init__(self, *, dial_seconds: float = 0.0) -> None:
        self.others: list[FakeTransport] = []
        self.dial_seconds = dial_seconds

    async def dial(self, on_lost: Callable[[HttpConnection], None]) -> HttpConnection:
        await asyncio.sleep(self.dial_seconds)
        connection = HttpConnection(on_lost)
        self.others.append(FakeTransport(connection))
        return connection


def pool_of(dial: Dial) -> Pool:
    """A pool whose client certificate never changes."""
    return Pool(dial, lambda: 0)


async def test_most_recently_used_connection_is_reused_first() -> None:
    pool = pool_of(Server().dial)
    first, second = await pool.acquire(), await pool.acquire()
    pool.release(first)
    pool.release(second)

    assert await pool.acquire() is second
    assert await pool.acquire() is first
    await pool.close()


async def test_idle_connection_is_closed_after_90_seconds() -> None:
    server = Server()
    pool = pool_of(server.dial)
    first, second = await pool.acquire(), await pool.acquire()
    pool.release(first)
    await asyncio.sleep(50)
    pool.release(second)
    await asyncio.sleep(39)
    assert [each.lost for each in server.others] == [False, False]
    await asyncio.sleep(2)
    assert [each.lost for each in server.others] == [True, False]
    await asyncio.sleep(50)
    assert [each.lost for each in server.others] == [True, True]
    await pool.close()


async def test_use_resets_the_idle_timeout() -> None:
    server = Server()
    pool = pool_of(server.dial)
    for _ in range(5):
        connection = await pool.acquire()
        await asyncio.sleep(60)
        pool.release(connection)
        await asyncio.sleep(60)

    assert len(server.others) == 1
    await pool.close()


async def test_closed_connection_is_skipped() -> None:
    server = Server()
    pool = pool_of(server.dial)
    kept, ended = await pool.acquire(), await pool.acquire()
    pool.release(kept)
    pool.release(ended)
    server.others[1].receive_eof()

    assert await pool.acquire() is kept
    await pool.close()


async def test_connection_with_incomplete_response_is_closed() -> None:
    server = Server()
    pool = pool_of(server.dial)
    connection = await pool.acquire()
    connection.send(b"GET / HTTP/1.1\r\n\r\n")
    pool.release(connection)
    await asyncio.sleep(0)

    assert server.others[0].lost
    await pool.close()


async def test_close_closes_idle_and_used_connections(looptime: float) -> None:
    server = Server()
    pool = pool_of(server.dial)
    idle, busy = await pool.acquire(), await pool.acquire()
    pool.release(idle)
    busy.send(b"GET / HTTP/1.1\r\n\r\n")
    await pool.close()

    assert [each.lost for each in server.others] == [True, True]
    assert looptime == 0
    pool.release(busy)


async def test_close_does_not_wait_for_a_connection_lost_while_dialing(looptime: float) -> None:
    async def dial(on_lost: Callable[[HttpConnection], None]) -> HttpConnection:
        connection = HttpConnection(on_lost)
        FakeTransport(connection).abort()
        await asyncio.sleep(0)
        return connection

    pool = pool_of(dial)
    await pool.acquire()
    await pool.close()

    assert looptime == 0


async def test_close_waits_a_second_for_a_connection_that_does_not_end(looptime: float) -> None:
    class Stuck(FakeTransport):
        def abort(self, error: Exception | None = None) -> None:
            pass

        close = abort

    async def dial(on_lost: Callable[[HttpConnection], None]) -> HttpConnection:
        connection = HttpConnection(on_lost)
        Stuck(connection)
        return connection

    pool = pool_of(dial)
    await pool.acquire()
    await pool.close()

    assert looptime == 1


async def test_close_waits_for_every_connection(looptime: float) -> None:
    """Also if another one was lost before."""

    class Slow(FakeTransport):
        def abort(self, error: Exception | None = None) -> None:
            asyncio.get_running_loop().call_later(0.5, super().abort, error)

    class SlowServer(Server):
        async def dial(self, on_lost: Callable[[HttpConnection], None]) -> HttpConnection:
            connection = HttpConnection(on_lost)
            self.others.append((Slow if self.others else FakeTransport)(connection))
            return connection

    server = SlowServer()
    pool = pool_of(server.dial)
    lost, slow = await pool.acquire(), await pool.acquire()
    slow.send(b"GET / HTTP/1.1\r\n\r\n")
    server.others[1].stuck = True
    slow.write(b"unsent")
    server.others[0].abort()
    await asyncio.sleep(0)
    pool.release(lost)
    await pool.close()

    assert looptime == 0.5
    assert server.others[1].lost


async def test_closed_pool_keeps_no_timer() -> None:
    pool = pool_of(Server().dial)
    pool.release(await pool.acquire())
    await pool.close()
    left = weakref.ref(pool)
    del pool
    gc.collect()

    assert left() is None


async def test_connection_dialed_after_close_is_closed() -> None:
    server = Server(dial_seconds=1)
    pool = pool_of(server.dial)
    taking = asyncio.create_task(pool.acquire())
    await asyncio.sleep(0.5)
    await pool.close()

    with pytest.raises(DialFailed, match="client is closed"):
        await taking
    await asyncio.sleep(0)
    assert server.others[0].lost


async def test_connection_of_an_older_version_is_not_reused() -> None:
    version = 0
    server = Server()
    pool = Pool(server.dial, lambda: version)
    idle, used = await pool.acquire(), await pool.acquire()
    pool.release(idle)
    version = 1
    pool.release(used)
    fresh = await pool.acquire()
    await asyncio.sleep(0)

    assert fresh not in (idle, used)
    assert [each.lost for each in server.others] == [True, True, False]
    pool.release(fresh)
    assert await pool.acquire() is fresh
    await pool.close()
