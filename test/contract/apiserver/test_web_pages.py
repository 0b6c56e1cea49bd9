"""The embedded API server refuses web pages even without tokens; a real one relies on credentials."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
from support.api_server import ApiServer

PODS = "/api/v1/namespaces/default/pods"
POD = b'{"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}'


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        yield server


async def send(
    server: ApiServer, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, dict[str, str]]:
    async with (
        aiohttp.ClientSession(skip_auto_headers=("Content-Type",)) as session,
        session.request(method, server.url + path, data=body, headers=headers) as response,
    ):
        return response.status, await response.json()


@pytest.mark.parametrize("origin", ["https://example.com", "null", "http://127.0.0.1:8080"])
async def test_a_request_with_an_origin_changes_nothing(server: ApiServer, origin: str) -> None:
    code, status = await send(server, "POST", PODS, POD, Origin=origin)
    assert (code, status["kind"], status["reason"]) == (403, "Status", "Forbidden")
    assert f'"Origin: {origin}"' in status["message"]
    assert server.objects("pods") == []


@pytest.mark.parametrize("path", [PODS, "/version", "/api", "/openapi/v3"])
@pytest.mark.parametrize(
    "host", ["example.com", "rebound.example.com:6443", "10.0.0.1:80", "x]", ""]
)
async def test_a_name_that_was_pointed_to_loopback_does_not_help(
    server: ApiServer, path: str, host: str
) -> None:
    code, status = await send(server, "GET", path, Host=host)
    assert (code, status["reason"]) == (403, "Forbidden")
    assert f'"Host: {host}", which is neither a loopback address nor localhost' in status["message"]


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1:80", "127.8.9.10", "[::1]", "[::1]:80"]
)
async def test_programs_of_this_machine_are_let_in(server: ApiServer, host: str) -> None:
    assert (await send(server, "POST", PODS, POD, Host=host))[0] == 201
    assert (await send(server, "GET", f"{PODS}/p", Host=host))[0] == 200
