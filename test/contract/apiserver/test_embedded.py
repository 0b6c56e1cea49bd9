"""The embedded server alone: what it refuses, expired versions, tokens, web pages, shutdown."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from contract.contract_api import DEFINITIONS, PROTOBUF, Api, ServerAddress, pod
from support.api_server import ApiServer


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


@pytest.mark.parametrize(
    ("method", "options", "code", "sentence"),
    [
        pytest.param("POST", {"content_type": PROTOBUF}, 415, "reads no protobuf; use kubectl create -f or kubectl apply -f", id="protobuf"),
        pytest.param("PATCH", {"content_type": "application/apply-patch+yaml"}, 415, "has no server-side apply; use kubectl apply without", id="server-side-apply"),
        pytest.param("PATCH", {"content_type": "application/json-patch+json"}, 415, "has no JSON patch; use kubectl patch --type=merge", id="json-patch"),
        pytest.param("GET", {"labelSelector": "a>1"}, 400, "selector requirement on 'a>1'", id="bounds-in-selectors"),
        pytest.param("GET", {"resourceVersion": 1, "resourceVersionMatch": "Exact"}, 400, "'Exact' - at `$.resourceVersionMatch`", id="exact-lists"),
        pytest.param("GET", {"continue": "x"}, 400, "sends whole lists", id="pages"),
        pytest.param("GET", {"accept": "application/yaml"}, 406, "accepted: application/json", id="yaml"),
        pytest.param("POST", {"content_type": "application/yaml"}, 415, "accepted media types include: application/json", id="yaml-bodies"),
        pytest.param("POST", {"dryRun": "All"}, 400, "no dry run; leave out --dry-run=server", id="dry-runs"),
        pytest.param("DELETE", {"dryRun": "All"}, 400, "no dry run; leave out --dry-run=server", id="dry-runs-of-deletions"),
        pytest.param("DELETE", {"propagationPolicy": "Orphan"}, 400, "'Orphan' - at `$.propagationPolicy`; this playground's", id="orphans"),
        pytest.param("DELETE", {"orphanDependents": "true"}, 400, "`$.orphanDependents`; this playground's", id="orphans-of-old"),
        pytest.param("DELETE", {"path": ""}, 405, "does not allow this method", id="deletions-of-collections"),
        pytest.param("PUT", {}, 404, "not found", id="creations-by-put"),
        pytest.param("GET", {"path": "p/log", "sinceSeconds": 5}, 400, "use container, follow, previous and tailLines", id="options-of-logs"),
    ],
)  # fmt: skip
async def test_what_is_outside_of_the_subset_is_refused_with_a_sentence(
    api: Api, method: str, options: dict[str, str], code: int, sentence: str
) -> None:
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
