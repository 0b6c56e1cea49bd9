"""The embedded server alone: what it refuses, expired versions, tokens, web pages, shutdown."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from contract.contract_api import DEFINITIONS, Api, ServerAddress, pod
from support.api_server import ApiServer
from support.tables import load_table


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        yield server


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[Api]:
    async with aiohttp.ClientSession() as session:
        api = Api(session, ServerAddress(server.url, Path()))
        api.namespace = "default"
        yield api


async def test_a_short_history_expires_versions_for_watches(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kruise_probe_playground.apiserver.store.HISTORY_CHANGES", 5)
    first = await api.create("pods", pod("p"))
    for number in range(10):
        await api.merge(api.path("pods", "p"), {"metadata": {"labels": {"n": str(number)}}})
    async with api.watch(api.path("pods"), resourceVersion=first.revision) as stream:
        (event,) = await stream.rest()
        assert event["type"] == "ERROR"
        assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    listed = await api.get(api.path("pods"), limit=1)
    async with api.watch(api.path("pods"), resourceVersion=listed.revision) as stream:
        await api.create("pods", pod("d"))
        assert (await stream.next())["object"]["metadata"]["name"] == "d"


async def test_clients_only_read_definitions(api: Api) -> None:
    path = f"{DEFINITIONS}/podprobemarkers.apps.kruise.io"
    refused = [await api.post(DEFINITIONS, {}), await api.merge(path, {}), await api.delete(path)]
    assert [each.code for each in refused] == [405, 405, 405]
    assert (await api.get(path)).code == 200


REFUSED = load_table(Path(__file__).parents[2] / "data" / "refused.yaml", {})


@pytest.mark.parametrize(("method", "options", "code", "sentence"), REFUSED.values(), ids=REFUSED)
async def test_what_is_outside_of_the_subset_is_refused_with_a_sentence(
    api: Api, method: str, options: dict[str, str], code: int, sentence: str
) -> None:
    options = dict(options)
    name = options.pop("path", "p" if method in ("PATCH", "PUT", "DELETE") else "")
    body = {"PUT": pod("p"), "GET": None, "DELETE": None}.get(method, {})
    refused = await api.send(method, api.path("pods", name), body, **options)
    assert (refused.code, sentence in refused.body["message"]) == (code, True), refused


async def test_requests_in_the_name_of_others_and_other_kinds_are_refused(api: Api) -> None:
    answer = await api.get("/apis/example.com/v9/deployments")
    assert (answer.code, "it offers customresourcedef" in answer.text) == (404, True)
    api.headers = [("Impersonate-User", "u")]
    refused = await api.get(api.path("pods"))
    assert (refused.code, "no impersonation; leave out --as" in refused.text) == (400, True)


@pytest.mark.parametrize("path", ["/api/v1/namespaces/default/pods", "/version", "/openapi/v3"])
@pytest.mark.parametrize(
    ("header", "value", "code"),
    [
        *(("Origin", each, 403) for each in ("https://example.com", "null", "http://127.0.0.1:8")),
        *(("Host", each, 403) for each in ("example.com", "rebound.example.com:6", "10.0.0.1:8", "x]", "")),
        *(("Host", each, 200) for each in ("localhost", "LOCALHOST:80", "127.8.9.10", "[::1]", "[::1]:8")),
    ],
)  # fmt: skip
async def test_requests_of_web_pages_are_refused(
    server: ApiServer, path: str, header: str, value: str, code: int
) -> None:
    """Even without tokens: a name that was pointed to loopback does not help."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(server.url + path, headers={header: value}) as response,
    ):
        assert response.status == code
        assert code == 200 or f'"{header}: {value}"' in (await response.json())["message"]
