"""Which connection is used next, and when one is closed."""

import asyncio
from collections.abc import Callable

import pytest
from support.fake_transport import FakeTransport

from kruise_probe.client.dialing import DialFailed
from kruise_probe.client.http1 import HttpConnection
from kruise_probe.client.pool import Pool

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


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


async def test_the_connection_that_was_used_last_is_used_next() -> None:
    pool = Pool(Server().dial)
    first, second = await pool.take(), await pool.take()
    pool.give_back(first)
    pool.give_back(second)

    assert await pool.take() is second
    assert await pool.take() is first
    await pool.close()


async def test_an_idle_connection_is_closed_after_90_seconds_and_not_before() -> None:
    server = Server()
    pool = Pool(server.dial)
    first, second = await pool.take(), await pool.take()
    pool.give_back(first)
    await asyncio.sleep(50)
    pool.give_back(second)
    await asyncio.sleep(39)
    assert [each.lost for each in server.others] == [False, False]
    await asyncio.sleep(2)
    assert [each.lost for each in server.others] == [True, False]
    await asyncio.sleep(50)
    assert [each.lost for each in server.others] == [True, True]
    await pool.close()


async def test_use_begins_the_idle_time_anew() -> None:
    server = Server()
    pool = Pool(server.dial)
    for _ in range(5):
        connection = await pool.take()
        await asyncio.sleep(60)
        pool.give_back(connection)
        await asyncio.sleep(60)

    assert len(server.others) == 1
    await pool.close()


async def test_one_that_has_ended_is_passed_over() -> None:
    server = Server()
    pool = Pool(server.dial)
    kept, ended = await pool.take(), await pool.take()
    pool.give_back(kept)
    pool.give_back(ended)
    server.others[1].receive_eof()

    assert await pool.take() is kept
    await pool.close()


async def test_one_whose_answer_is_not_complete_is_not_kept() -> None:
    server = Server()
    pool = Pool(server.dial)
    connection = await pool.take()
    connection.send(b"GET / HTTP/1.1\r\n\r\n")
    pool.give_back(connection)
    await asyncio.sleep(0)

    assert server.others[0].lost
    await pool.close()


async def test_closing_the_pool_closes_what_is_idle_and_what_is_under_way(looptime: float) -> None:
    server = Server()
    pool = Pool(server.dial)
    idle, busy = await pool.take(), await pool.take()
    pool.give_back(idle)
    busy.send(b"GET / HTTP/1.1\r\n\r\n")
    await pool.close()

    assert [each.lost for each in server.others] == [True, True]
    assert looptime == 0
    pool.give_back(busy)


async def test_closing_does_not_wait_for_one_that_ended_while_it_was_made(looptime: float) -> None:
    async def dial(on_lost: Callable[[HttpConnection], None]) -> HttpConnection:
        connection = HttpConnection(on_lost)
        FakeTransport(connection).abort()
        await asyncio.sleep(0)
        return connection

    pool = Pool(dial)
    await pool.take()
    await pool.close()

    assert looptime == 0


async def test_a_connection_that_is_made_too_late_is_closed() -> None:
    server = Server(dial_seconds=1)
    pool = Pool(server.dial)
    taking = asyncio.create_task(pool.take())
    await asyncio.sleep(0.5)
    await pool.close()

    with pytest.raises(DialFailed, match="has been closed"):
        await taking
    await asyncio.sleep(0)
    assert server.others[0].lost


async def test_a_connection_of_an_older_version_is_not_used_again() -> None:
    version = 0
    server = Server()
    pool = Pool(server.dial, lambda: version)
    idle, used = await pool.take(), await pool.take()
    pool.give_back(idle)
    version = 1
    pool.give_back(used)
    fresh = await pool.take()
    await asyncio.sleep(0)

    assert fresh not in (idle, used)
    assert [each.lost for each in server.others] == [True, True, False]
    pool.give_back(fresh)
    assert await pool.take() is fresh
    await pool.close()
