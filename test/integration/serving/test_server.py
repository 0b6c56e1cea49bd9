"""The endpoints over real sockets."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from support.patience import PATIENCE_SECONDS

from kruise_probe.serving.address import BindError
from kruise_probe.serving.exposition import MetricsHandler
from kruise_probe.serving.health import Checks
from kruise_probe.serving.server import HealthEndpoint, HttpServer


@asynccontextmanager
async def serving(checks: Checks, *, tls: bool = False) -> AsyncIterator[str]:
    server = HttpServer(
        "127.0.0.1:0",
        flag="--addr",
        tls=tls,
        handlers={"/readyz": HealthEndpoint("readyz", checks), "/metrics": MetricsHandler()},
    )
    server.bind()
    task = asyncio.create_task(server.run())
    try:
        yield f"http://{server.address}"
    finally:
        task.cancel()
        await asyncio.wait({task})
        server.close()


async def get(
    url: str, *, tls: ssl.SSLContext | bool = True, **headers: str
) -> tuple[int, str, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers=headers, ssl=tls) as response,
    ):
        return response.status, await response.text(), response.headers["Content-Type"]


async def test_health_is_ok_or_says_what_is_wrong() -> None:
    problem: str | None = None
    checks = Checks()
    checks.add("caches", lambda: None)
    checks.add("runtime", lambda: problem)
    async with serving(checks) as url:
        assert (await get(f"{url}/readyz"))[:2] == (200, "ok")
        assert (await get(f"{url}/readyz?verbose"))[1] == (
            "[+]caches ok\n[+]runtime ok\nreadyz check passed\n"
        )
        problem = "away"
        status, text, _ = await get(f"{url}/readyz")
        excluded, _, _ = await get(f"{url}/readyz?exclude=runtime")

    assert (status, excluded) == (503, 200)
    assert text == "[+]caches ok\n[-]runtime failed: away\nreadyz check failed\n"


async def test_each_check_answers_for_itself() -> None:
    checks = Checks()
    checks.add("cache pods", lambda: None)
    checks.add("runtime", lambda: "away")
    async with serving(checks) as url:
        well = await get(f"{url}/readyz/cache%20pods")
        broken = await get(f"{url}/readyz/runtime")
        unknown = await get(f"{url}/readyz/runtim")
        all_of_them = await get(f"{url}/readyz/?exclude=runtime&exclude=runtim&verbose")

    assert well[:2] == (200, "ok")
    assert broken[:2] == (503, "runtime failed: away\n")
    assert unknown[0] == 404
    assert all_of_them[:2] == (
        200,
        "[+]cache pods ok\n[+]runtime excluded: ok\n"
        'warn: some health checks cannot be excluded: no matches for "runtim"\nreadyz check passed\n',
    )


async def test_an_endpoint_without_checks_has_ping() -> None:
    async with serving(Checks()) as url:
        assert (await get(f"{url}/readyz/ping"))[:2] == (200, "ok")
        assert (await get(f"{url}/readyz/other"))[0] == 404


@pytest.mark.parametrize(
    ("accept", "kind", "end"),
    [
        pytest.param("", "text/plain", "", id="plain"),
        pytest.param(
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            "application/openmetrics-text",
            "# EOF\n",
            id="openmetrics",
        ),
    ],
)
async def test_metrics_come_in_the_form_that_is_asked_for(accept: str, kind: str, end: str) -> None:
    async with serving(Checks()) as url:
        status, text, content_type = await get(f"{url}/metrics", Accept=accept)

    assert (status, content_type.split(";")[0]) == (200, kind)
    assert "rest_client_requests" in text or "python_info" in text
    assert text.endswith(end)
    assert "_created" not in text, "a name that Go's client does not have"


async def test_any_other_path_is_not_found() -> None:
    async with serving(Checks()) as url:
        assert (await get(f"{url}/debug"))[0] == 404


async def test_a_taken_port_is_known_before_anything_starts() -> None:
    async with serving(Checks()) as url:
        second = HttpServer(url.removeprefix("http://"), flag="--addr", handlers={})
        with pytest.raises(BindError, match="is taken already"):
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


async def test_a_request_that_hangs_does_not_hold_the_end_up() -> None:
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


async def test_a_connection_serves_many_requests_and_says_what_is_wrong_with_the_last() -> None:
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


async def test_one_port_serves_health_in_plain_and_metrics_by_tls() -> None:
    async with serving(Checks(), tls=True) as url:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        assert (await get(f"{url}/readyz"))[:2] == (200, "ok")
        secure = url.replace("http:", "https:")
        assert (await get(f"{secure}/readyz", tls=context))[:2] == (200, "ok")
        assert (await get(f"{secure}/metrics", tls=context))[0] == 200


async def test_a_client_that_half_closes_after_its_request_is_answered() -> None:
    """As `nc -N` does."""
    checks = Checks()

    async def taking_a_moment() -> str | None:
        for _ in range(10):
            await asyncio.sleep(0)
        return None

    checks.add("slow", taking_a_moment)
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
