"""The embedded server alone: expired versions, tokens, shutdown."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from support.api_server import ApiServer
from support.contract_api import DEFINITIONS, Api, ServerAddress, pod
from support.patience import PATIENCE_SECONDS

from kruise_probe_playground.apiserver.authentication import User


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


async def test_expired_versions_are_gone_for_watches_and_pages(server: ApiServer, api: Api) -> None:
    for name in "abc":
        await api.create("pods", pod(name))
    page = await api.get(api.path("pods"), limit=1)
    server.expire()
    async with api.watch(api.path("pods"), resourceVersion=page.revision) as stream:
        event = await stream.line()
        assert event["type"] == "ERROR"
        assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
        assert await stream.ended()
    refused = await api.get(api.path("pods"), limit=1, **{"continue": page.meta["continue"]})
    assert (refused.code, refused.body["reason"]) == (410, "Expired")
    rest = await api.get(api.path("pods"), **{"continue": refused.meta["continue"]})
    assert [each["metadata"]["name"] for each in rest.body["items"]] == ["b", "c"]
    exact = await api.get(
        api.path("pods"), resourceVersion=page.revision, resourceVersionMatch="Exact"
    )
    assert exact.code == 410


async def test_clients_only_read_definitions(api: Api) -> None:
    path = f"{DEFINITIONS}/podprobemarkers.apps.kruise.io"
    refused = [await api.post(DEFINITIONS, {}), await api.merge(path, {}), await api.delete(path)]
    assert [each.code for each in refused] == [405, 405, 405]
    assert (await api.get(path)).code == 200


@pytest.mark.parametrize(
    ("options", "field"),
    [
        pytest.param({"propagationPolicy": "Foreground"}, "propagationPolicy", id="foreground"),
        pytest.param({"propagationPolicy": "Orphan"}, "propagationPolicy", id="orphan"),
        pytest.param({"orphanDependents": True}, "orphanDependents", id="orphan-dependents"),
    ],
)
async def test_deletions_that_are_not_in_the_background_are_refused(
    api: Api, options: dict[str, object], field: str
) -> None:
    await api.create("pods", pod("a"))
    refused = await api.delete(api.path("pods", "a"), options)
    assert (refused.code, [each for _, each in refused.causes]) == (422, [field])
    assert "deletionTimestamp" not in (await api.get(api.path("pods", "a"))).meta


async def test_a_watch_from_a_list_after_an_expiry_works(server: ApiServer, api: Api) -> None:
    await api.create("pods", pod("a"))
    server.expire()
    listed = await api.get(api.path("pods"))
    async with api.watch(api.path("pods"), resourceVersion=listed.revision) as stream:
        await api.create("pods", pod("b"))
        assert (await stream.next())["object"]["metadata"]["name"] == "b"


async def test_a_request_needs_a_token_of_the_table() -> None:
    server = ApiServer(tokens={"secret": User("daemon")})
    async with server, aiohttp.ClientSession() as session:
        url = f"{server.url}/api/v1/namespaces/default/pods"
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            async with session.get(url, headers=headers) as response:
                assert response.status == 401
                assert (await response.json())["reason"] == "Unauthorized"
        headers = {"Authorization": "Bearer secret"}
        async with session.get(url, headers=headers) as response:
            assert response.status == 200


async def test_leaving_the_block_ends_watches_and_frees_the_port() -> None:
    async with aiohttp.ClientSession() as session:
        async with ApiServer() as server:
            api = Api(session, ServerAddress(server.url, Path()))
            opened = asyncio.Event()
            watching = asyncio.create_task(_hear(api, opened))
            await opened.wait()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await watching
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(server.url)


async def _hear(api: Api, opened: asyncio.Event) -> None:
    try:
        async with api.watch("/api/v1/pods") as stream:
            opened.set()
            await stream.ended()
    except aiohttp.ClientError:
        return


async def test_a_short_history_expires_versions_by_itself(
    server: ApiServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kruise_probe_playground.apiserver.store.HISTORY_CHANGES", 5)
    first = await api.create("pods", pod("p"))
    for number in range(10):
        await api.merge(api.path("pods", "p"), {"metadata": {"labels": {"n": str(number)}}})
    async with api.watch(api.path("pods"), resourceVersion=first.revision) as stream:
        assert (await stream.line())["object"]["code"] == 410


@pytest.mark.parametrize(
    "quantity", ["1e19", "1e99999999999", "-1e19", "1" * 6000, "9" * 30 + "Ki"]
)
async def test_a_quantity_that_the_real_server_stores_and_this_one_does_not_is_refused(
    api: Api, quantity: str
) -> None:
    body = pod("p")
    body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": quantity}}
    response = await api.post(api.path("pods"), body)
    assert response.code == 400
    assert "only quantities below 1e19" in response.text
