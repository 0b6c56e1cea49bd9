"""The endpoints over real sockets."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest
from support.background import background
from support.patience import PATIENCE_SECONDS

from kruise_probe.serving.address import BindError
from kruise_probe.serving.exposition import MetricsHandler
from kruise_probe.serving.health import Checks, health_handlers
from kruise_probe.serving.http_server import HttpServer
from kruise_probe.serving.tls import ServerTls, self_signed_certificate


@asynccontextmanager
async def serving(checks: Checks, *, tls: bool = False) -> AsyncIterator[str]:
    server_tls = ServerTls() if tls else None
    server = HttpServer(
        "127.0.0.1:0",
        flag="--addr",
        tls=server_tls,
        handlers={**health_handlers(health=checks, ready=checks), "/metrics": MetricsHandler()},
    )
    server.bind()
    async with AsyncExitStack() as running:
        _ = await running.enter_async_context(background(server.run()))
        if server_tls:
            _ = await running.enter_async_context(
                background(self_signed_certificate(server_tls).run())
            )
            # The server waits for 10 s only, and a subprocess issues the certificate.
            async with asyncio.timeout(PATIENCE_SECONDS):
                await server_tls.loaded.wait()
        yield f"{'https' if tls else 'http'}://{server.address}"


async def get(
    url: str, *, tls: ssl.SSLContext | bool = True, **headers: str
) -> tuple[int, str, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers=headers, ssl=tls) as response,
    ):
        return response.status, await response.text(), response.headers["Content-Type"]


async def test_readyz_is_ok_or_lists_the_failed_checks() -> None:
    problem: str | None = None
    checks = Checks()
    checks.add("caches", lambda: None)
    checks.add("runtime", lambda: problem)
    async with serving(checks) as url:
        assert (await get(f"{url}/readyz"))[:2] == (200, "ok")
        assert (await get(f"{url}/readyz?verbose"))[1] == (
            "[+]caches ok\n[+]runtime ok\nreadyz check passed\n"
        )
        problem = "not connected"
        status, text, _ = await get(f"{url}/readyz")

    assert status == 503
    assert text == "[+]caches ok\n[-]runtime failed: not connected\nreadyz check failed\n"


async def test_metrics_are_text_whatever_the_client_accepts() -> None:
    async with serving(Checks()) as url:
        status, text, content_type = await get(
            f"{url}/metrics", Accept="application/openmetrics-text;version=1.0.0"
        )

    assert (status, content_type.split(";")[0]) == (200, "text/plain")
    assert "python_info" in text
    assert "_created" not in text, "a name that Go's client does not have"


async def test_an_unknown_path_is_not_found() -> None:
    async with serving(Checks()) as url:
        assert (await get(f"{url}/debug"))[0] == 404


async def test_a_port_in_use_is_an_error_of_bind() -> None:
    async with serving(Checks()) as url:
        second = HttpServer(url.removeprefix("http://"), flag="--addr", handlers={})
        with pytest.raises(BindError, match="the port is already in use"):
            second.bind()


@pytest.mark.parametrize("address", ["0", ""])
async def test_a_server_that_is_turned_off_runs_until_cancelled(address: str) -> None:
    server = HttpServer(address, flag="--addr", handlers={})
    server.bind()
    task = asyncio.create_task(server.run())
    await asyncio.sleep(0)

    assert server.address is None
    assert not task.done()
    task.cancel()
    await asyncio.wait({task})


async def test_a_request_that_hangs_does_not_delay_the_end() -> None:
    checks = Checks()

    async def hanging() -> str | None:
        await asyncio.get_running_loop().create_future()
        return None

    checks.add("hangs", hanging)
    time = asyncio.get_running_loop().time
    async with asyncio.TaskGroup() as tasks:
        async with serving(checks) as url:
            asked = tasks.create_task(_outcome(f"{url}/readyz"))
            await asyncio.sleep(0.1)
            begun = time()
        took = time() - begun
        outcome = await asked

    assert took < PATIENCE_SECONDS
    assert outcome == "no answer"


async def _outcome(url: str) -> str:
    try:
        await get(url)
    except aiohttp.ClientError:
        return "no answer"
    return "answered"


async def test_a_connection_serves_requests_until_one_is_refused() -> None:
    async with serving(Checks()) as url:
        reader, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
        for _ in range(3):
            writer.write(b"HEAD /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.write(
            b"POST /readyz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000
        )
        async with asyncio.timeout(PATIENCE_SECONDS):
            refusal = await reader.read()
        writer.close()

    assert refusal.startswith(b"HTTP/1.1 413 ")
    assert b"Connection: close" in refusal


async def test_a_port_with_tls_accepts_https_only() -> None:
    async with serving(Checks(), tls=True) as url:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        assert (await get(f"{url}/readyz", tls=context))[:2] == (200, "ok")
        assert (await get(f"{url}/metrics", tls=context))[0] == 200
        with pytest.raises(aiohttp.ClientError):
            await get(url.replace("https:", "http:") + "/readyz")


async def test_a_client_that_half_closes_gets_its_response() -> None:
    """As `nc -N` does."""
    checks = Checks()

    async def slow() -> str | None:
        for _ in range(10):
            await asyncio.sleep(0)
        return None

    checks.add("slow", slow)
    async with serving(checks) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        writer.write_eof()
        async with asyncio.timeout(PATIENCE_SECONDS):
            said = await reader.read()
        writer.close()

    assert said.startswith(b"HTTP/1.1 200 OK\r\n")
    assert said.endswith(b"\r\n\r\nok")
