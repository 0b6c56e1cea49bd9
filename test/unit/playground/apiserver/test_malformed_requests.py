"""Malformed requests over HTTP: each gets a Status in the API server's format, never a bare 500."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs
from support.api_server import ApiServer
from support.contract_api import MERGE, STRATEGIC, Api, ServerAddress, pod

pytestmark = pytest.mark.sockets

DEEP = 50_000  # Python 3.13 decodes 8,000 levels
DEEP_LIST = b"[" * DEEP + b"]" * DEEP
DEEP_OBJECT = b'{"metadata":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}"
REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
PODS = "/api/v1/namespaces/default/pods"


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


def replica_set() -> dict[str, Any]:
    labels = {"app": "game"}
    template = {"metadata": {"labels": labels}, "spec": pod()["spec"]}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": "game"}, "spec": spec}


def with_finalizers(*finalizers: Any) -> dict[str, Any]:
    return {"metadata": {"finalizers": [*finalizers]}}


@pytest.mark.parametrize(
    ("method", "path", "body", "form", "code"),
    [
        pytest.param("POST", "/api/v1/namespaces", {"metadata": {}}, "application/json", 422, id="namespace-without-name"),
        pytest.param("POST", PODS, DEEP_LIST, "application/json", 400, id="deep-list"),
        pytest.param("POST", PODS, DEEP_OBJECT, "application/json", 400, id="deep-object"),
        pytest.param("POST", PODS, DEEP_OBJECT, "application/yaml", 400, id="deep-yaml"),
        pytest.param("PATCH", f"{PODS}/p", DEEP_OBJECT, MERGE, 400, id="deep-merge-patch"),
        pytest.param("PATCH", f"{PODS}/p", DEEP_OBJECT, STRATEGIC, 400, id="deep-strategic-patch"),
        pytest.param("POST", f"{PODS}/p/binding", DEEP_OBJECT, "application/json", 400, id="deep-binding"),
        pytest.param("POST", PODS, b"metadata: {name: a, labels: {on: b}}", "application/yaml", 400, id="yaml-boolean-key"),
        pytest.param("POST", PODS, b"metadata: {name: a, labels: {null: b}}", "application/yaml", 400, id="yaml-null-key"),
        pytest.param("POST", PODS, b'metadata: {name: a, "\\uD800": b}', "application/yaml", 400, id="yaml-surrogate"),
        pytest.param("POST", PODS, b"metadata: {name: 2026-13-45}", "application/yaml", 400, id="yaml-invalid-date"),
        pytest.param("POST", PODS, b'{"metadata": {"name": "\xff"}}', "application/json", 400, id="not-utf-8"),
        pytest.param("PATCH", f"{PODS}/p", b'{"metadata": {"name": "\xff"}}', MERGE, 400, id="patch-not-utf-8"),
        pytest.param("POST", f"{PODS}/p/binding", b'{"target": {"name": "\xff"}}', "application/json", 400, id="binding-not-utf-8"),
        pytest.param("PUT", f"{REPLICA_SETS}/game/scale", {"spec": [{}]}, "application/json", 400, id="scale-spec-is-a-list"),
        pytest.param("PUT", f"{REPLICA_SETS}/game/scale", {"metadata": "a"}, "application/json", 400, id="scale-metadata-is-text"),
        pytest.param("PATCH", f"{PODS}/p", {"metadata": {"$deleteFromPrimitiveList/finalizers": 5}}, STRATEGIC, 400, id="delete-from-no-list"),
        pytest.param("PATCH", f"{PODS}/p", with_finalizers(["a.io/b"]), STRATEGIC, 422, id="list-of-lists"),
        pytest.param("PATCH", f"{PODS}/p", {"metadata": {"$setElementOrder/finalizers": [["a.io/b"]]}}, STRATEGIC, 200, id="order-of-lists"),
        pytest.param("PATCH", f"{PODS}/p", {"spec": {"containers": [{"name": {}}]}}, STRATEGIC, 422, id="object-as-merge-key"),
    ],
)  # fmt: skip
async def test_malformed_body_is_refused_with_a_status(
    api: Api, method: str, path: str, body: Any, form: str, code: int
) -> None:
    await api.create("pods", pod("p", finalizers=["a.io/b"]))
    assert (await api.post(REPLICA_SETS, replica_set())).code == 201

    answer = await api.send(method, path, body, content_type=form)

    assert answer.code == code
    assert answer.body["kind"] == ("Pod" if code == 200 else "Status")


@pytest.mark.parametrize("limit", [1 << 63, -(1 << 63) - 1, 1 << 80, "9" * 5000])
async def test_limit_outside_int64_is_refused(api: Api, limit: int | str) -> None:
    answer = await api.get(PODS, limit=limit)

    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
    assert "value out of range" in answer.body["message"]


async def test_largest_limit_lists_everything(api: Api) -> None:
    await api.create("pods", pod("p"))

    assert len((await api.get(PODS, limit=(1 << 63) - 1)).body["items"]) == 1


@pytest.mark.parametrize("seconds", [None, 1 << 62])
async def test_longest_grace_period_is_clamped(api: Api, seconds: int | None) -> None:
    body = pod("p")
    body["spec"]["terminationGracePeriodSeconds"] = (1 << 63) - 1
    await api.create("pods", body)

    deleted = await api.delete(f"{PODS}/p", {"gracePeriodSeconds": seconds})
    assert deleted.code == 200, deleted
    assert deleted.meta["deletionTimestamp"] > "2050"
    shortened = await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert shortened.code == 200


async def test_longest_log_period_is_clamped(api: Api) -> None:
    await api.create("pods", pod("p", node=""))

    assert (await api.get(f"{PODS}/p/log", sinceSeconds=(1 << 63) - 1)).code == 204


async def test_control_characters_in_warnings_are_escaped(api: Api) -> None:
    body = pod("p")
    body["spec"]['a\r\nb\0\x1b\x7f"é'] = 1

    created = await api.post(PODS, body)

    assert created.code == 201
    assert (
        created.headers["Warning"] == r'299 - "unknown field \"spec.a\r\nb\u0000\u001b\u007f\"é\""'
    )


async def test_unexpected_error_is_logged_once_and_answered_with_a_status(
    server: ApiServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(server.registry, "get", broken)
    with capture_logs() as logs:
        answer = await api.get(f"{PODS}/p")

    assert (answer.code, answer.body["reason"]) == (500, "InternalError")
    assert "a defect" in answer.body["message"]
    assert [each["log_level"] for each in logs] == ["error"]


async def test_error_in_a_stream_ends_the_connection(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("kruise_probe_playground.apiserver.watching._frame", broken)
    async with api.watch(PODS, resourceVersion=1) as stream:
        await api.create("pods", pod("p"))
        with pytest.raises(aiohttp.ClientPayloadError):
            await stream.ended()


@pytest.mark.parametrize("header", ["Impersonate-User", "impersonate-extra-scopes"])
async def test_impersonation_is_refused_with_the_alternative(api: Api, header: str) -> None:
    async with api.session.get(api.target.url + PODS, headers={header: "mary"}) as response:
        refused = await response.json()
    assert (response.status, refused["reason"]) == (400, "BadRequest")
    assert "no impersonation; leave out --as" in refused["message"]
