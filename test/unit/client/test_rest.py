"""The client over real sockets: its requests, and every kind of server failure."""

import asyncio
import dataclasses
import gzip
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import REGISTRY
from support.patience import PATIENCE_SECONDS
from support.programs import until
from support.scripted_http import (
    Act,
    ScriptedHttpServer,
    after,
    answer,
    raw,
    refusal,
    reset,
    silence,
    stream,
)

from kruise_probe.api.errors import (
    AlreadyExists,
    Conflict,
    ConnectionFailed,
    Expired,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
)
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.kinds import EventType
from kruise_probe.api.meta import ObjectMeta
from kruise_probe.api.resources import LEASES, PODS
from kruise_probe.client import sender, watch
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.credentials import TokenFile
from kruise_probe.client.request import PatchType
from kruise_probe.client.rest import RestClient

pytestmark = pytest.mark.sockets

WEB = NamespacedName("default", "web-0")
POD = {"metadata": {"name": "web-0", "namespace": "default", "uid": "u", "resourceVersion": "1"}}
NO_PODS = {"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": []}
LEASE = {"metadata": {"name": "l", "namespace": "n", "resourceVersion": "7"}, "spec": {}}


@asynccontextmanager
async def client_of(
    *script: Act, **options: Any
) -> AsyncIterator[tuple[RestClient, ScriptedHttpServer]]:
    """A client and the server that it talks to; `options` are the client's."""
    async with ScriptedHttpServer(list(script)).running() as server:
        config = options.pop("config", None) or ClusterConfig.plain(server.url)
        if callable(config):
            config = config(server.url)
        async with RestClient(
            config=config, field_manager="manager", user_agent="kruise-probe/test", **options
        ) as client:
            yield client, server


async def get(client: RestClient) -> object:
    return await client.get(PODS, WEB)


async def patch(client: RestClient) -> object:
    return await client.patch(
        PODS, WEB, b"{}", patch_type=PatchType.STRATEGIC_MERGE, subresource="status"
    )


async def create(client: RestClient) -> object:
    return await client.create(LEASES, b"{}", namespace="n")


async def delete(client: RestClient) -> object:
    await client.delete(PODS, WEB, uid="u")
    return None


async def list_page(client: RestClient) -> object:
    return await client.list_page(PODS)


async def open_watch(client: RestClient) -> object:
    async with client.watch(PODS, timeout_seconds=60) as events:
        async for event in events:
            return event
    return None


Call = Callable[[RestClient], Any]
EVERY_VERB = [
    pytest.param(get, answer(200, POD), id="get"),
    pytest.param(patch, answer(200, POD), id="patch"),
    pytest.param(create, answer(201, LEASE), id="create"),
    pytest.param(delete, answer(200, {"kind": "Status"}), id="delete"),
    pytest.param(
        list_page,
        answer(200, NO_PODS),
        id="list",
    ),
    pytest.param(open_watch, stream(finished=True), id="watch"),
]


@pytest.mark.parametrize(
    ("body", "remaining"),
    [
        pytest.param({"kind": "Status"}, None, id="deleted"),
        pytest.param(POD, "web-0", id="finalizers-remain"),
    ],
)
async def test_delete_returns_the_object_if_finalizers_remain(
    body: dict[str, Any], remaining: str | None
) -> None:
    async with client_of(answer(200, body)) as (client, _):
        left = await client.delete(PODS, WEB)
    assert (left and left.name) == remaining


async def test_undecodable_response_to_a_delete_is_an_error_of_the_server() -> None:
    async with client_of(answer(200, ["no object"])) as (client, _):
        with pytest.raises(KubeError, match="DELETE pods default/web-0"):
            await client.delete(PODS, WEB)


async def test_request_has_the_expected_headers_and_no_others() -> None:
    async with client_of(answer(200, POD)) as (client, server):
        pod = await client.patch(
            PODS, WEB, b'{"a":1}', patch_type=PatchType.STRATEGIC_MERGE, subresource="status"
        )

    (received,) = server.received
    assert pod.name == "web-0"
    assert (received.method, received.target, received.body) == (
        "PATCH",
        "/api/v1/namespaces/default/pods/web-0/status?fieldManager=manager",
        b'{"a":1}',
    )
    assert received.headers == {
        "host": server.url.removeprefix("http://"),
        "user-agent": "kruise-probe/test",
        "accept": "application/json",
        "content-type": "application/strategic-merge-patch+json",
        "content-length": "7",
    }


async def test_impersonated_user_and_group_are_headers() -> None:
    def impersonating(url: str) -> ClusterConfig:
        config = ClusterConfig.plain(url)
        return dataclasses.replace(config, as_user="jane", as_groups=("devs",))

    async with client_of(answer(200, POD), config=impersonating) as (client, server):
        await get(client)

    (received,) = server.received
    assert received.headers["impersonate-user"] == "jane"
    assert received.headers["impersonate-group"] == "devs"


async def test_server_url_may_have_a_path() -> None:
    def below(url: str) -> ClusterConfig:
        return ClusterConfig.plain(url + "/k8s/clusters/c-1/")

    async with client_of(answer(200, POD), config=below) as (client, server):
        await get(client)

    assert server.received[0].target == "/k8s/clusters/c-1/api/v1/namespaces/default/pods/web-0"


async def test_idle_connections_are_reused() -> None:
    async with client_of(answer(200, POD)) as (client, server):
        for _ in range(20):
            await get(client)

    assert server.connections == 1


async def test_tcp_keepalive_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []
    original = socket.socket

    class Remembered(original):  # type: ignore[misc, valid-type]  # a class made of a name
        def connect(self, address: object) -> None:
            made.append(self)
            super().connect(address)

    monkeypatch.setattr(socket, "socket", Remembered)
    async with client_of(after(0.05, answer(200, POD))) as (client, _):
        await get(client)
        (used,) = made
        options = (
            used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
            used.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
            used.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
            used.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
        )

    assert options == (1, 30, 30, 3)


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        pytest.param(401, "Unauthorized", Unauthorized, id="401"),
        pytest.param(403, "Forbidden", Forbidden, id="403"),
        pytest.param(404, "NotFound", NotFound, id="404"),
        pytest.param(409, "Conflict", Conflict, id="409"),
        pytest.param(409, "AlreadyExists", AlreadyExists, id="409-exists"),
        pytest.param(410, "Expired", Expired, id="410"),
        pytest.param(422, "Invalid", Invalid, id="422"),
        pytest.param(429, "TooManyRequests", TooManyRequests, id="429-without-retry-after"),
        pytest.param(500, "InternalError", ServerError, id="500"),
        pytest.param(504, "Timeout", ServerError, id="504"),
    ],
)
async def test_api_error_is_typed_and_names_the_request(
    status: int, reason: str, kind: type[KubeError]
) -> None:
    async with client_of(refusal(status, reason, "because")) as (client, server):
        with pytest.raises(
            kind, match=rf"PATCH pods/status default/web-0: {status} {reason}: because"
        ):
            await patch(client)

    assert len(server.received) == 1


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(answer(502, b"<html>bad gateway</html>"), id="a-proxys-page"),
        pytest.param(answer(502, b""), id="empty"),
    ],
)
async def test_error_without_status_body_is_typed_by_code(act: Act) -> None:
    async with client_of(act) as (client, _):
        with pytest.raises(ServerError) as raised:
            await get(client)

    assert raised.value.code == 502


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(answer(200, b"<html>login</html>"), id="a-login-page"),
        pytest.param(answer(200, b""), id="empty"),
        pytest.param(answer(200, {"metadata": {"name": 5}}), id="another-kind"),
        pytest.param(raw(b"SSH-2.0-OpenSSH\r\n", end=True), id="not-http"),
        pytest.param(answer(302, b"", Location="http://127.0.0.1:9/"), id="redirect"),
    ],
)
async def test_unusable_response_is_an_error_and_redirects_are_not_followed(act: Act) -> None:
    async with client_of(act) as (client, server):
        with pytest.raises(KubeError):
            await get(client)

    assert len(server.received) <= 1


async def test_refused_connection_names_the_server() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        async with RestClient(
            config=ClusterConfig.plain(url), field_manager="m", user_agent="u"
        ) as client:
            with pytest.raises(ConnectionFailed, match=f"GET pods default/web-0: .*{port}"):
                await get(client)


@pytest.mark.parametrize(("call", "success"), EVERY_VERB)
async def test_unresponsive_server_ends_every_verb_at_its_deadline(
    monkeypatch: pytest.MonkeyPatch, call: Call, success: Act
) -> None:
    monkeypatch.setattr(sender, "REQUEST_SECONDS", 0.5)
    time = asyncio.get_running_loop().time
    async with client_of(silence) as (client, server):
        started = time()
        with pytest.raises(ConnectionFailed, match=r"http.* did not respond within 0.5 s"):
            await call(client)
        took = time() - started
        monkeypatch.undo()
        server.script = [success]
        await call(client)

    assert 0.5 <= took < PATIENCE_SECONDS


async def test_stalled_response_ends_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sender, "REQUEST_SECONDS", 0.2)
    half = raw(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"meta')
    async with client_of(half) as (client, _):
        with pytest.raises(ConnectionFailed):
            await get(client)


async def test_retry_after_beyond_the_deadline_is_raised_at_once() -> None:
    time = asyncio.get_running_loop().time
    async with client_of(refusal(429, "TooManyRequests", "later", Retry_After="60")) as (client, _):
        started = time()
        with pytest.raises(TooManyRequests) as raised:
            await get(client)

    assert raised.value.retry_after_seconds == 60
    assert time() - started < PATIENCE_SECONDS


async def test_request_that_waits_for_a_retry_is_not_in_flight() -> None:
    refused = refusal(429, "TooManyRequests", "later", Retry_After="20")
    async with client_of(refused, answer(200, POD), max_in_flight=1) as (client, server):
        waiting = asyncio.create_task(get(client))
        await server.until_received(1)
        await get(client)
        assert not waiting.done()
        waiting.cancel()


@pytest.mark.parametrize(
    "call", [get, patch, delete, list_page, open_watch], ids=lambda call: call.__name__
)
async def test_repeatable_request_is_retried_after_a_broken_connection(
    call: Call,
) -> None:
    removed = {"kind": "Status"}
    success = {"get": POD, "patch": POD, "delete": removed, "list_page": NO_PODS}
    async with client_of(reset, answer(200, success.get(call.__name__, b""))) as (client, server):
        await call(client)

    assert len(server.received) == 2
    host = server.url.removeprefix("http://")
    labels = {"code": "<error>", "verb": server.received[0].method, "host": host}
    assert REGISTRY.get_sample_value("rest_client_request_retries_total", labels) == 1


async def test_idle_connection_closed_by_the_server_is_replaced() -> None:
    close = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", end=True)
    async with client_of(close, answer(201, LEASE)) as (client, server):
        await client.get_raw("/version")
        await asyncio.sleep(0.05)
        await create(client)

    assert server.connections == 2


def token_config(path: Path) -> Callable[[str], ClusterConfig]:
    return lambda url: ClusterConfig(server=url, tls=None, credentials=TokenFile(path))


@pytest.mark.parametrize(("call", "success"), EVERY_VERB)
async def test_rotated_token_fails_no_request(tmp_path: Path, call: Call, success: Act) -> None:
    path = tmp_path / "token"
    path.write_text("old")

    async def judge(received: Any, writer: asyncio.StreamWriter) -> None:
        fresh = received.headers["authorization"] == "Bearer new"
        await (success if fresh else refusal(401, "Unauthorized"))(received, writer)

    async with client_of(judge, config=token_config(path)) as (client, server):
        with pytest.raises(Unauthorized):
            await call(client)
        path.write_text("new")
        await call(client)

    sent = [each.headers["authorization"] for each in server.received]
    assert sent == ["Bearer old", "Bearer old", "Bearer new"]


class NotLeading(Exception):
    pass


async def test_before_send_is_called_for_each_sent_write_and_never_for_reads() -> None:
    calls = 0

    def check_leadership() -> None:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise NotLeading

    refused = refusal(429, "TooManyRequests", "later", Retry_After="0")
    async with client_of(answer(200, POD), before_send=check_leadership) as (client, server):
        await get(client)
        await list_page_of(client, server)
        assert calls == 0
        server.script = [reset, refused, answer(200, POD)]
        with pytest.raises(NotLeading):
            await patch(client)

    writes = [each for each in server.received if each.method == "PATCH"]
    assert (calls, len(writes)) == (3, 2)


async def list_page_of(client: RestClient, server: ScriptedHttpServer) -> None:
    server.script = [answer(200, NO_PODS)]
    await client.list_page(PODS)


async def test_before_send_is_called_after_connecting() -> None:
    """`before_send` is called with the connection, not before it was dialed."""
    lost = False

    def check_leadership() -> None:
        if lost:
            raise NotLeading

    async with client_of(
        after(1.0, answer(200, POD)), max_in_flight=1, before_send=check_leadership
    ) as (
        client,
        server,
    ):
        first = asyncio.create_task(patch(client))
        second = asyncio.create_task(patch(client))

        async def first_was_received() -> bool:
            return len(server.received) == 1

        await until("the first is in flight", first_was_received)
        lost = True
        await first
        with pytest.raises(NotLeading):
            await second

    assert len(server.received) == 1


async def test_only_lists_request_compression() -> None:
    page = gzip.compress(
        msgspec.json.encode(
            {"kind": "PodList", "metadata": {"resourceVersion": "5"}, "items": [POD]}
        )
    )
    async with client_of(answer(200, page, Content_Encoding="gzip")) as (client, server):
        found = await client.list_page(PODS)
        server.script = [answer(200, POD)]
        await get(client)

    assert (len(found.items), found.resource_version) == (1, "5")
    assert [each.headers.get("accept-encoding") for each in server.received] == ["gzip", None]


async def replace_for_metadata(client: RestClient) -> ObjectMeta:
    return await client.replace_for_metadata(PODS, WEB, b"{}", subresource="status")


async def test_replace_for_metadata_requests_and_returns_only_metadata() -> None:
    partial = {"kind": "PartialObjectMetadata", "metadata": POD["metadata"]}
    async with client_of(answer(200, partial), answer(200, POD)) as (client, server):
        written = await replace_for_metadata(client)
        written_by_a_server_without_partial_responses = await replace_for_metadata(client)

    assert (written.name, written.resource_version) == ("web-0", "1")
    assert written_by_a_server_without_partial_responses == written
    assert "as=PartialObjectMetadata" in server.received[0].headers["accept"]


async def test_replace_for_metadata_reports_a_response_without_it() -> None:
    async with client_of(answer(200, b"whatever")) as (client, _):
        with pytest.raises(ConnectionFailed, match="PUT pods/status default/web-0: the response"):
            await replace_for_metadata(client)


async def test_cancelled_request_is_no_longer_in_flight() -> None:
    async with client_of(silence, max_in_flight=1) as (client, server):
        for count in (1, 2, 3):
            task = asyncio.create_task(get(client))
            await server.until_received(count)
            task.cancel()
            await asyncio.wait({task})
        server.script = [answer(200, POD)]
        async with asyncio.timeout(PATIENCE_SECONDS):
            await get(client)


def frame(kind: str, body: object) -> bytes:
    return msgspec.json.encode({"type": kind, "object": body}) + b"\n"


BOOKMARK = frame("BOOKMARK", {"metadata": {"resourceVersion": "9"}})


async def watched(client: RestClient) -> list[tuple[str, str]]:
    seen: list[tuple[str, str]] = []
    async with client.watch(LEASES, timeout_seconds=60) as events:
        async for event in events:
            seen.append((event.type, event.resource_version))  # noqa: PERF401 - kept when it raises
    return seen


async def test_watch_yields_events_until_the_server_ends_it() -> None:
    parts = (frame("ADDED", LEASE), frame("MODIFIED", LEASE) + BOOKMARK)
    async with client_of(stream(*parts, finished=True)) as (client, _):
        seen = await watched(client)

    assert seen == [("ADDED", "7"), ("MODIFIED", "7"), ("BOOKMARK", "9")]


async def test_watch_decodes_events_in_any_portions() -> None:
    data = frame("ADDED", LEASE) + BOOKMARK
    async with client_of(
        stream(*(data[i : i + 3] for i in range(0, len(data), 3)), finished=True)
    ) as (
        client,
        _,
    ):
        assert await watched(client) == [("ADDED", "7"), ("BOOKMARK", "9")]


async def test_event_may_have_many_megabytes() -> None:
    large = {**LEASE, "padding": "x" * 8_000_000}
    data = frame("ADDED", large)
    parts = [data[i : i + 60_000] for i in range(0, len(data), 60_000)]
    async with client_of(stream(*parts, finished=True)) as (client, _):
        time = asyncio.get_running_loop().time
        started = time()
        assert await watched(client) == [("ADDED", "7")]

    assert time() - started < PATIENCE_SECONDS


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(stream(frame("ADDED", LEASE), end=True), id="cut-between-events"),
        pytest.param(stream(frame("ADDED", LEASE), b'{"type":', end=True), id="cut-in-an-event"),
        pytest.param(
            stream(frame("ADDED", LEASE), b'{"type":', finished=True), id="ended-in-an-event"
        ),
        pytest.param(stream(frame("ADDED", LEASE), b"<html>\n"), id="no-event"),
        pytest.param(stream(frame("ADDED", LEASE)), id="silent"),
    ],
)
async def test_broken_watch_raises_after_its_last_event(
    act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "READ_DEADLINE_SECONDS", 0.2)
    async with (
        client_of(act) as (client, _),
        client.watch(LEASES, timeout_seconds=60) as events,
    ):
        first = await anext(events)
        with pytest.raises(ConnectionFailed):
            await anext(events)

    assert first.type is EventType.ADDED


async def test_each_event_extends_the_read_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "READ_DEADLINE_SECONDS", 0.3)
    parts: list[bytes | float] = []
    for _ in range(4):
        parts += [0.15, BOOKMARK]
    async with client_of(stream(*parts, finished=True)) as (client, _):
        seen = await watched(client)

    assert len(seen) == 4


async def test_expired_watch_raises_expired_for_status_and_event() -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    async with client_of(stream(frame("ERROR", gone)), refusal(410, "Expired")) as (client, _):
        for _ in range(2):
            with pytest.raises(Expired):
                await watched(client)


async def test_leaving_a_watch_closes_its_connection() -> None:
    async with client_of(stream(BOOKMARK)) as (client, server):
        async with client.watch(LEASES, timeout_seconds=60) as events:
            await anext(events)
        server.script = [answer(200, POD)]
        await get(client)

    assert server.connections == 2
