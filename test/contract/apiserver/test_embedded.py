"""The embedded server alone: what it refuses, expired versions, tokens, web pages, shutdown."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from contract.contract_api import DATA, DEFINITIONS, Api, ServerAddress, pod
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
    path = api.path("pods")
    first = await api.create("pods", pod())
    for number in range(10):
        await api.merge(
            f"{path}/p",
            {"metadata": {"labels": {"n": str(number)}}},
        )
    async with api.watch(path, resourceVersion=first.revision) as stream:
        (event,) = await stream.rest()
        assert event["type"] == "ERROR"
        assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    listed = await api.get(path, limit=1)
    async with api.watch(path, resourceVersion=listed.revision) as stream:
        await api.create("pods", pod("d"))
        event = await stream.next()
        assert event["object"]["metadata"]["name"] == "d"


async def test_clients_only_read_definitions(api: Api) -> None:
    path = f"{DEFINITIONS}/podprobemarkers.apps.kruise.io"
    assert (await api.post(DEFINITIONS, {})).code == 405
    assert (await api.merge(path, {})).code == 405
    assert (await api.delete(path)).code == 405
    assert (await api.get(path)).code == 200


REFUSED = load_table(DATA / "refused.yaml", {})


@pytest.mark.parametrize(
    ("method", "options", "code", "sentence"),
    REFUSED.values(),
    ids=REFUSED,
)
async def test_what_is_outside_of_the_subset_is_refused_with_a_sentence(
    api: Api, method: str, options: dict[str, str], code: int, sentence: str
) -> None:
    name = "p" if method in ("PATCH", "PUT", "DELETE") else ""
    query = {"path": name, **options}
    path = api.path("pods", query.pop("path"))
    body = {
        "PUT": pod(),
        "GET": None,
        "DELETE": None,
    }.get(method, {})
    refused = await api.send(method, path, body, **query)
    assert refused.code == code, refused
    assert sentence in refused.body["message"]


async def test_requests_in_the_name_of_others_and_other_kinds_are_refused(api: Api) -> None:
    answer = await api.get("/apis/example.com/v9/deployments")
    assert answer.code == 404
    assert "it offers customresourcedef" in answer.text
    api.headers = [("Impersonate-User", "u")]
    refused = await api.get(api.path("pods"))
    assert refused.code == 400
    assert "no impersonation; leave out --as" in refused.text


@pytest.mark.parametrize("path", ["/api/v1/namespaces/default/pods", "/version", "/openapi/v3"])
@pytest.mark.parametrize(
    ("header", "value", "code"),
    [
        ("Origin", "https://example.com", 403),
        ("Origin", "null", 403),
        ("Origin", "http://127.0.0.1:8", 403),
        ("Host", "example.com", 403),
        ("Host", "rebound.example.com:6", 403),
        ("Host", "10.0.0.1:8", 403),
        ("Host", "x]", 403),
        ("Host", "", 403),
        ("Host", "localhost", 200),
        ("Host", "LOCALHOST:80", 200),
        ("Host", "127.8.9.10", 200),
        ("Host", "[::1]", 200),
        ("Host", "[::1]:8", 200),
    ],
)
async def test_requests_of_web_pages_are_refused(
    server: ApiServer, path: str, header: str, value: str, code: int
) -> None:
    """Even without tokens: a name that was pointed to loopback does not help."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(server.url + path, headers={header: value}) as response,
    ):
        assert response.status == code
        if code == 403:
            assert f'"{header}: {value}"' in (await response.json())["message"]
