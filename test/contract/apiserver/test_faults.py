"""Faults that tests ask the playground's server for; a real one has no such switches."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from support.contract_api import Api, Target, marker, pod
from support.patience import PATIENCE_SECONDS
from support.programs import until

from kruise_probe.manifests.crds import all_crds
from kruise_probe.playground.apiserver.server import EmbeddedApiServer
from kruise_probe.playground.apiserver.users import NO_TOKENS, User


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedApiServer]:
    async with EmbeddedApiServer(crds=all_crds(), tokens=NO_TOKENS) as server:
        yield server


@pytest.fixture
async def api(server: EmbeddedApiServer) -> AsyncIterator[Api]:
    async with aiohttp.ClientSession() as session:
        api = Api(session, Target(server.url, Path()))
        api.namespace = "default"
        yield api


async def test_expired_versions_are_gone_for_watches_and_pages(
    server: EmbeddedApiServer, api: Api
) -> None:
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


async def test_a_watch_from_a_list_after_an_expiry_works(
    server: EmbeddedApiServer, api: Api
) -> None:
    await api.create("pods", pod("a"))
    server.expire()
    listed = await api.get(api.path("pods"))
    async with api.watch(api.path("pods"), resourceVersion=listed.revision) as stream:
        await api.create("pods", pod("b"))
        assert (await stream.next())["object"]["metadata"]["name"] == "b"


@pytest.mark.parametrize("abruptly", [False, True])
async def test_dropped_watches_end(server: EmbeddedApiServer, api: Api, abruptly: bool) -> None:
    async with api.watch(api.path("pods"), resourceVersion=1) as stream:
        assert server.drop_watches(abruptly=abruptly) == 1
        if abruptly:
            with pytest.raises(aiohttp.ClientError):
                await stream.ended()
        else:
            assert await stream.ended()


async def test_a_black_hole_says_nothing_until_it_closes(
    server: EmbeddedApiServer, api: Api
) -> None:
    async with api.watch(
        api.path("pods"), resourceVersion=1, timeoutSeconds=1, allowWatchBookmarks="true"
    ) as stream:
        server.black_hole_watches()
        await api.create("pods", pod("a"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await stream.line()
        server.black_hole_watches(on=False)
        assert (await stream.next())["object"]["metadata"]["name"] == "a"


async def test_a_black_hole_can_be_left_by_dropping_its_watches(
    server: EmbeddedApiServer, api: Api
) -> None:
    async with api.watch(api.path("pods"), resourceVersion=1) as stream:
        server.black_hole_watches()
        await api.create("pods", pod("a"))
        server.drop_watches()
        with pytest.raises(aiohttp.ClientError):
            await stream.ended()


async def test_requests_fail_as_often_as_planned(server: EmbeddedApiServer, api: Api) -> None:
    server.faults.fail(
        code=503, reason="ServiceUnavailable", verb="list", times=2, retry_after_seconds=1
    )
    for _ in range(2):
        refused = await api.get(api.path("pods"))
        assert (refused.code, refused.headers["Retry-After"]) == (503, "1")
        assert refused.body["details"] == {"retryAfterSeconds": 1}
    assert (await api.get(api.path("pods"))).code == 200


async def test_faults_choose_by_verb_resource_and_predicate(
    server: EmbeddedApiServer, api: Api
) -> None:
    await api.create("pods", pod("a"))
    await api.create("pods", pod("b"))
    server.faults.fail(
        code=500,
        verb="patch",
        resource="pods/status",
        times=None,
        when=lambda asked: asked.name == "a",
    )
    patch = {"status": {"message": "m"}}
    assert (await api.strategic(api.path("pods", "a") + "/status", patch)).code == 500
    assert (await api.strategic(api.path("pods", "b") + "/status", patch)).code == 200
    assert (await api.strategic(api.path("pods", "a"), {})).code == 200
    server.faults.heal()
    assert (await api.strategic(api.path("pods", "a") + "/status", patch)).code == 200


async def test_a_refused_request_changes_nothing(server: EmbeddedApiServer, api: Api) -> None:
    server.faults.fail(code=500, verb="create")
    assert (await api.post(api.path("pods"), pod("a"))).code == 500
    assert server.objects("pods") == []


async def test_latency_delays_answers(server: EmbeddedApiServer, api: Api) -> None:
    server.faults.latency_seconds = 0.3
    loop = asyncio.get_running_loop()
    began = loop.time()
    await api.get(api.path("pods"))
    assert loop.time() - began >= 0.3


async def test_requests_are_counted(server: EmbeddedApiServer, api: Api) -> None:
    await api.create("pods", pod("a"))
    await api.get(api.path("pods"))
    await api.get(api.path("pods", "none"))
    await api.strategic(api.path("pods", "a") + "/status", {})
    count = server.faults.count
    assert count() == 4
    assert count("create", "pods", 201) == 1
    assert count(resource="pods") == 3
    assert count(code=404) == 1
    assert count("patch", "pods/status") == 1


async def test_tokens_name_users_and_rights_are_asked(tmp_path: Path) -> None:
    server = EmbeddedApiServer(
        crds=all_crds(),
        tokens={"secret": User("daemon")},
        authorize=lambda user, verb, resource, namespace: verb == "list",
    )
    async with server, aiohttp.ClientSession() as session:
        url = f"{server.url}/api/v1/namespaces/default/pods"
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            async with session.get(url, headers=headers) as response:
                assert response.status == 401
                assert (await response.json())["reason"] == "Unauthorized"
        headers = {"Authorization": "Bearer secret"}
        async with session.get(url, headers=headers) as response:
            assert response.status == 200
        async with session.get(f"{url}/p", headers=headers) as response:
            assert response.status == 403
            refused = await response.json()
        assert refused["message"] == (
            'pods "p" is forbidden: User "daemon" cannot get resource "pods" in API group "" in the'
            ' namespace "default"'
        )


async def test_leaving_the_block_ends_watches_and_frees_the_port() -> None:
    async with aiohttp.ClientSession() as session:
        async with EmbeddedApiServer(crds=all_crds(), tokens=NO_TOKENS) as server:
            api = Api(session, Target(server.url, Path()))
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


async def test_run_serves_until_it_is_cancelled() -> None:
    server = EmbeddedApiServer(crds=all_crds(), tokens=NO_TOKENS)
    running = asyncio.create_task(server.run())
    async with aiohttp.ClientSession() as session:

        async def serves() -> bool:
            try:
                async with session.get(f"{server.url}/healthz") as response:
                    return response.status == 200
            except aiohttp.ClientError:
                return False

        await until("it serves", serves)
        running.cancel()
        await asyncio.wait([running])
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(server.url)


async def test_a_slow_reader_costs_no_unbounded_memory(
    server: EmbeddedApiServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kruise_probe.playground.apiserver.store.WATCHER_BACKLOG", 10)
    async with api.watch(api.path("podprobemarkers"), resourceVersion=1) as stream:
        server.black_hole_watches()
        for number in range(30):
            await api.create("podprobemarkers", marker(f"m{number}"))
        (watcher,) = server.registry.collection(
            server.registry.kinds["podprobemarkers.apps.kruise.io"]
        ).watchers
        assert watcher.closed
        server.black_hole_watches(on=False)
        events = await stream.rest()
    assert len(events) <= 11, "what comes later is the business of the next watch"


async def test_a_short_history_expires_versions_by_itself(
    server: EmbeddedApiServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kruise_probe.playground.apiserver.store.HISTORY_CHANGES", 5)
    first = await api.create("pods", pod("p"))
    for number in range(10):
        await api.merge(api.path("pods", "p"), {"metadata": {"labels": {"n": str(number)}}})
    async with api.watch(api.path("pods"), resourceVersion=first.revision) as stream:
        assert (await stream.line())["object"]["code"] == 410
