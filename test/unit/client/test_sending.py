"""The client from `get` to the bytes of its connections: deadlines, retries and limits, on virtual time."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from types import NoneType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from structlog.testing import capture_logs
from support.cases import cases
from support.fake_transport import FakeTransport
from support.metrics import counted
from support.scripted_node import gaps

from kruise_probe.api.core import Lease
from kruise_probe.api.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    ConnectionFailed,
    Expired,
    Invalid,
    NoResponse,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
)
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.resources import EVENTS, LEASES
from kruise_probe.api.times import loop_time
from kruise_probe.client import pool
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.connection import ConnectionBroken, HttpConnection
from kruise_probe.client.credentials import AuthInfo, Credentials
from kruise_probe.client.pod_streams import open_stream
from kruise_probe.client.request import PatchType
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.client.watch import WatchStream

KEY = NamespacedName("n", "l")
LEASE = json.dumps({"metadata": {"name": "l", "namespace": "n", "resourceVersion": "7"}}).encode()
NO_LEASES = b'{"kind":"LeaseList","metadata":{"resourceVersion":"7"},"items":[]}'
BOOKMARK = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}\n'
LARGE = b"x" * 40_960
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def answer(status: int, body: bytes = b"", **fields: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


OK = answer(200, LEASE)
LEASES_PAGE = answer(200, NO_LEASES)


class Connection(FakeTransport):
    """The server's end of a connection; each write of the client is one request."""

    def __init__(self, protocol: HttpConnection, server: "Server") -> None:
        self._server = server
        super().__init__(protocol)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        super().write(data)
        self._server.received(self, bytes(data))


class Server:
    """A server without sockets, and its client, which sends a request by each verb.

    Attributes:
        requests: heads and bodies.
        arrivals: the loop times of the requests.
        script: the next responses; an error breaks the connection, and None is no response.
        default: the response after the script.
    """

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.requests: list[str] = []
        self.arrivals: list[float] = []
        self.script: list[bytes | type[Exception] | None] = []
        self.default: bytes | None = OK
        self.delay_seconds = 0.0
        self.client: RestClient

    async def get(self) -> Lease:
        return await self.client.get(LEASES, KEY)

    async def create(self) -> None:
        await self.client.create(LEASES, b"{}", namespace="n")

    async def replace(self) -> None:
        await self.client.replace_for_metadata(LEASES, KEY, b"{}")

    async def replace_large(self) -> None:
        await self.client.replace_for_metadata(LEASES, KEY, LARGE, deadline_seconds=10)

    async def patch(self) -> None:
        await self.client.patch(LEASES, KEY, b"{}", patch_type=PatchType.MERGE)

    async def delete(self) -> None:
        await self.client.delete(LEASES, KEY)

    async def list_page(self) -> None:
        await self.client.list_page(LEASES)

    def watching(self) -> AbstractAsyncContextManager[WatchStream[Lease]]:
        return self.client.watch(LEASES, timeout_seconds=300)

    async def watch(self) -> None:
        async with self.watching():
            pass

    async def get_at_once(self, number: int) -> None:
        """Sends GETs at the same time. Each opens a connection, which is idle afterwards."""
        async with asyncio.TaskGroup() as group:
            for _ in range(number):
                group.create_task(self.get())

    @property
    def methods(self) -> list[str]:
        return [request.split()[0] for request in self.requests]

    @property
    def targets(self) -> list[str]:
        return [request.split()[1] for request in self.requests]

    async def dial(self) -> HttpConnection:
        connection = HttpConnection()
        self.connections.append(Connection(connection, self))
        return connection

    def received(self, connection: Connection, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        self.arrivals.append(round(loop.time(), 3))
        self.requests.append(data.decode())
        response = self.script.pop(0) if self.script else self.default
        if isinstance(response, bytes):
            loop.call_later(self.delay_seconds, connection.receive, response)
        elif response is not None:
            loop.call_soon(connection.abort)


@asynccontextmanager
async def connected(
    server: Server, config: ClusterConfig | None = None, **options: Any
) -> AsyncIterator[None]:
    """Replaces the client."""
    client = RestClient(
        config=config or ClusterConfig(server="http://api"),
        field_manager="m",
        user_agent="u/1",
        **options,
    )
    client._transport._dialer.dial = server.dial  # type: ignore[method-assign]
    async with client as server.client:
        yield


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    async with connected(server):
        yield server


@pytest.mark.parametrize("bookmarks_at", [[], [69.0], [10.0, 79.0]])
async def test_c1_a_watch_without_data_for_70_s_is_an_error(
    server: Server, bookmarks_at: list[float]
) -> None:
    """The product's own deadline, which no caller sets."""
    server.default = STREAM
    loop = asyncio.get_running_loop()
    async with server.watching() as events:
        (connection,) = server.connections
        for at in bookmarks_at:
            loop.call_at(at, connection.receive, chunk(BOOKMARK))
            await anext(events)
        with pytest.raises(ConnectionFailed, match="no data for 70 s"):
            await anext(events)
    assert loop_time() == pytest.approx(max(bookmarks_at, default=0.0) + 70.0)
    assert connection.closing, "it is not kept for another request"


async def test_every_request_ends_within_30_s(server: Server) -> None:
    server.default = None
    with pytest.raises(ConnectionFailed, match="http://api did not respond within 30 s"):
        await server.get()
    assert loop_time() == 30
    with pytest.raises(ConnectionFailed, match="30 s"):
        await server.watch()
    assert loop_time() == 60
    assert all(connection.closing for connection in server.connections)


@cases(
    "bytes_per_second answered_at ends_at",
    slow_link=(2048, 25.0, 25.0),
    slow_link_without_a_response=(2048, None, 40.0),
    slower_than_a_minute_allows=(512, None, 60.0),
    nothing_arrives=(0, None, 10.0),
    a_proxy_takes_it_at_once=(1 << 30, 20.0, 20.0),
)
async def test_the_deadline_of_a_large_write_counts_from_its_last_progress(
    server: Server,
    bytes_per_second: int,
    answered_at: float | None,
    ends_at: float,
) -> None:
    server.default = None
    writing = asyncio.create_task(server.replace_large())
    await asyncio.sleep(0)
    (connection,) = server.connections
    began = loop_time()

    def left() -> int:
        return max(len(LARGE) - int((loop_time() - began) * bytes_per_second), 0)

    connection.get_write_buffer_size = left  # type: ignore[method-assign]
    if answered_at is not None:
        asyncio.get_running_loop().call_at(began + answered_at, connection.receive, OK)
    await asyncio.wait([writing])
    assert loop_time() - began == pytest.approx(ends_at, abs=1.1)
    assert isinstance(writing.exception(), NoneType if answered_at else NoResponse)


async def test_events_wait_for_the_large_writes_that_are_slow_then(server: Server) -> None:
    server.script = [None, None, OK]
    with capture_logs() as logs:
        async with asyncio.TaskGroup() as group:
            group.create_task(server.replace_large())
            await asyncio.sleep(2)
            group.create_task(server.client.create(EVENTS, b"{}", namespace="n"))
            group.create_task(server.replace_large())
            await asyncio.sleep(2)
            first, second = server.connections
            first.receive(OK)
            await asyncio.sleep(1)
            assert server.methods == ["PUT", "PUT", "POST"]
            server.script = [OK]
            await server.replace_large()
            await asyncio.sleep(2)
            second.receive(OK)
    assert len(logs) == 1


async def test_a_timeout_without_a_byte_closes_the_connections_that_worked_before(
    server: Server,
) -> None:
    """As after a fail-over of a load balancer, where all connections of the same age are dead."""
    await server.get_at_once(3)
    server.script = [None]
    with pytest.raises(NoResponse):
        await server.get()
    assert all(connection.closing for connection in server.connections)
    assert (await server.get()).resource_version == "7"
    assert len(server.connections) == 4


async def test_a_timeout_keeps_the_connections_that_worked_since(server: Server) -> None:
    await server.get_at_once(2)
    server.script = [None]
    hanging = asyncio.create_task(server.get())
    await asyncio.sleep(10)
    await server.get()
    with pytest.raises(NoResponse):
        await hanging
    assert sorted(connection.closing for connection in server.connections) == [False, True]


async def test_a_watch_without_data_closes_the_idle_connections(server: Server) -> None:
    server.script = [STREAM]
    async with server.watching() as events:
        await server.get_at_once(2)
        with pytest.raises(NoResponse):
            await anext(events)
    assert all(connection.closing for connection in server.connections)


Call = Callable[[Server], Awaitable[object]]


def raw(method: str) -> Call:
    return lambda server: server.client.request_raw(method, "/version")


@cases(
    "call idle broken sent succeeds",
    two_idle_connections=(Server.get, 4, 2, 3, True),
    no_third_one=(Server.get, 4, 3, 3, False),
    a_new_connection=(Server.get, 0, 1, 2, True),
    one_repetition_after_a_new_one=(Server.get, 0, 2, 2, False),
    a_creation_may_have_taken_effect=(Server.create, 0, 1, 1, False),
    raw_get=(raw("GET"), 0, 1, 2, True),
    raw_post=(raw("POST"), 0, 1, 1, False),
    raw_delete=(raw("DELETE"), 0, 1, 1, False),
)
async def test_reads_are_repeated_after_a_connection_broke(
    server: Server,
    call: Call,
    idle: int,
    broken: int,
    sent: int,
    succeeds: bool,
) -> None:
    await server.get_at_once(idle)
    server.script = [OSError] * broken
    with nullcontext() if succeeds else pytest.raises(ConnectionBroken):
        await call(server)
    assert len(server.requests) == idle + sent


@cases(
    "call verb success",
    get=(Server.get, "GET", OK),
    create=(Server.create, "POST", OK),
    replace=(Server.replace, "PUT", OK),
    patch=(Server.patch, "PATCH", OK),
    delete=(Server.delete, "DELETE", OK),
    list=(Server.list_page, "GET", LEASES_PAGE),
    watch=(Server.watch, "GET", STREAM),
)
async def test_retry_after_is_waited_for_by_every_verb_and_counted(
    server: Server,
    call: Call,
    verb: str,
    success: bytes,
) -> None:
    retries = counted(
        "rest_client_request_retries_total",
        code="503",
        verb=verb,
        host="api",
    )
    wait = answer(503, Retry_After="3")
    server.script = [wait, wait, success]
    await call(server)

    assert len(server.requests) == 3
    assert all(3 <= gap <= 3.6 for gap in gaps(server.arrivals))
    assert retries() == 2


async def test_a_server_that_always_asks_to_wait_gets_a_bounded_number_of_requests(
    server: Server,
) -> None:
    server.default = answer(429, Retry_After="0")
    with pytest.raises(TooManyRequests):
        await server.get()
    assert 5 < len(server.requests) <= 11
    assert loop_time() < 30


async def test_a_server_error_is_returned_and_quotes_a_page_of_a_proxy(server: Server) -> None:
    server.default = answer(502, b"<html>\n  bad gateway </html>" + b"x" * 1000)
    with pytest.raises(ServerError, match=r"GET leases n/l: .*<html> bad gateway </html>x{174}$"):
        await server.get()
    assert len(server.requests) == 1


def headers_of(request: str) -> dict[str, str]:
    _, *lines = request.partition("\r\n\r\n")[0].split("\r\n")
    return dict(line.split(": ") for line in lines)


def body_of(request: str) -> str:
    return request.partition("\r\n\r\n")[2]


class Rotating(Credentials):
    """A token that is replaced when the server refuses it."""

    version = 0

    def __init__(self, *renewals: bool) -> None:
        self.token = 1
        self._renewals = iter(renewals)
        self.rejected: list[str | None] = []

    def authorization(self) -> str | None:
        return f"Bearer t{self.token}"

    async def renew(self, rejected: str | None, since: int = 0) -> bool:
        self.rejected.append(rejected)
        renewed = next(self._renewals)
        self.token += renewed
        return renewed


@cases(
    "responses renewals tokens raises",
    renewed=([401], [True], ["t1", "t2"], False),
    nothing_newer=([401], [False], ["t1"], True),
    once_only=([401, 401], [True, True], ["t1", "t2"], True),
)
async def test_after_a_401_a_request_is_repeated_once_with_renewed_credentials(
    server: Server,
    responses: list[int],
    renewals: list[bool],
    tokens: list[str],
    raises: bool,
) -> None:
    credentials = Rotating(*renewals)
    server.script = [answer(status) for status in responses]
    config = ClusterConfig(server="http://api", credentials=credentials)
    async with connected(server, config):
        with pytest.raises(Unauthorized) if raises else nullcontext():
            await server.get()
    sent = [headers_of(request)["Authorization"] for request in server.requests]

    assert sent == [f"Bearer {token}" for token in tokens]
    assert credentials.rejected == ["Bearer t1"]
    assert len(server.connections) == len(sent), "each on a connection of its own"


async def test_connections_are_limited_and_watches_do_not_count(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MAX_CONNECTIONS", 2)
    server.delay_seconds = 5.0
    server.script = [STREAM, STREAM, STREAM]
    async with server.watching(), server.watching(), server.watching():
        began = loop_time()
        await server.get_at_once(5)
    waited = [arrival - began for arrival in server.arrivals[3:]]
    assert waited == pytest.approx([0, 0, 5, 5, 10])


@cases(
    "burst times",
    no_burst=(0, [0, 0.5, 1.0, 1.5]),
    burst=(3, [0, 0, 0, 0.5]),
)
async def test_rate_of_requests_is_limited(server: Server, burst: int, times: list[float]) -> None:
    async with connected(server, qps=2.0, burst=burst):
        for _ in range(4):
            await server.get()
    assert server.arrivals == pytest.approx(times)


async def test_callers_that_give_up_in_the_queue_take_no_token(server: Server) -> None:
    """As reconciles that end at their deadline. All tokens were reserved by such callers, so nothing was sent at all."""

    async def insist() -> None:
        while True:
            with suppress(TimeoutError, NoResponse):
                async with asyncio.timeout(20):
                    await server.get()
                return

    async with connected(server, qps=1.0, burst=1), asyncio.TaskGroup() as group:
        for _ in range(60):
            group.create_task(insist())
    assert server.arrivals == pytest.approx(range(60), abs=0.1)


async def test_a_fenced_write_is_not_sent_and_its_connection_is_kept(server: Server) -> None:
    def refuse() -> None:
        raise ApiError("fenced")

    async with connected(server, before_send=refuse):
        await server.get()
        for write in (server.create, server.replace, server.delete):
            with pytest.raises(ApiError, match="fenced"):
                await write()
        await server.get()
    assert server.methods == ["GET", "GET"]
    assert len(server.connections) == 1


async def test_the_response_to_a_write_of_an_object_that_is_nested_deeply_is_read(
    server: Server,
) -> None:
    deep = b'"metadata": {"managedFields":[' + b"[" * 3_000 + b"]" * 3_000 + b"],"
    server.default = answer(200, LEASE.replace(b'"metadata": {', deep))
    await server.patch()


@cases(
    "body",
    no_object=b"[]",
    empty=b"{}",
    of_a_proxy=b'{"message":"ok"}',
    status=b'{"kind":"Status","metadata":{},"status":"Success"}',
    another_lease=LEASE.replace(b'"l"', b'"other"'),
    without_version=b'{"metadata":{"name":"l","namespace":"n"}}',
)
async def test_success_with_a_body_of_something_else_is_an_error(
    server: Server, body: bytes
) -> None:
    server.default = answer(200, body)
    failed = "leases n/l: the response is not that object"
    with pytest.raises(ConnectionFailed, match=f"GET {failed}"):
        await server.get()
    with pytest.raises(ConnectionFailed, match=f"PUT {failed}"):
        await server.replace()
    with pytest.raises(ConnectionFailed, match=f"PATCH {failed}"):
        await server.patch()
    with pytest.raises(ConnectionFailed, match="GET leases: the response is not a list"):
        await server.list_page()


SWITCHED_WITH_ANOTHER_KEY = (
    b"HTTP/1.1 101 X\r\n"
    b"Connection: Upgrade\r\n"
    b"Upgrade: websocket\r\n"
    b"Sec-WebSocket-Accept: x\r\n\r\n"
)


@cases(
    "response lost",
    status_200=(answer(200), False),
    status_204=(answer(204), False),
    another_key=(SWITCHED_WITH_ANOTHER_KEY, True),
)
async def test_a_stream_of_a_pod_requires_a_websocket(
    server: Server, response: bytes, lost: bool
) -> None:
    server.default = response
    with pytest.raises(ConnectionFailed, match="instead of a WebSocket"):
        async with open_stream(server.client, KEY, "exec", []):
            pass
    await asyncio.sleep(0)
    assert server.connections[0].lost == lost, "closed while the client is open"


async def test_a_watch_requires_a_stream(server: Server) -> None:
    server.default = answer(204)
    with pytest.raises(ConnectionFailed, match="responded with status 204 instead of a stream"):
        await server.watch()
    assert "sendInitialEvents" not in server.targets[0]


async def test_lister_watcher_requests_only_what_it_selects(server: Server) -> None:
    """A daemon may read the NodePodProbe of its own node only."""
    source = ResourceListerWatcher(
        server.client,
        LEASES,
        "n",
        field_selector="metadata.name=l",
    )
    server.script = [LEASES_PAGE, LEASES_PAGE, STREAM]
    for token in ("", "more"):
        await source.list_page(limit=3, continue_token=token, resource_version="5")
    async with source.watch(
        resource_version="7",
        timeout_seconds=60,
        send_initial_events=False,
    ):
        pass
    urls = [urlsplit(target) for target in server.targets]
    assert {url.path for url in urls} == {"/apis/coordination.k8s.io/v1/namespaces/n/leases"}
    selected = {"fieldSelector": ["metadata.name=l"]}
    assert [parse_qs(url.query) for url in urls] == [
        {"limit": ["3"], "resourceVersion": ["5"], **selected},
        {"limit": ["3"], "continue": ["more"], **selected},
        {
            "watch": ["true"],
            "allowWatchBookmarks": ["true"],
            "timeoutSeconds": ["60"],
            "resourceVersion": ["7"],
            **selected,
        },
    ]


async def test_a_token_that_would_add_a_header_is_not_sent(server: Server) -> None:
    credentials = Credentials(AuthInfo("Bearer a\r\nImpersonate-User: admin"))
    config = ClusterConfig(server="http://api", credentials=credentials)
    async with connected(server, config):
        with pytest.raises(ConnectionFailed, match="characters that are invalid in a header"):
            await server.get()
    assert not server.requests


async def test_requests_are_counted_by_code_and_timed(server: Server) -> None:
    def requests(code: str) -> Callable[[], float]:
        return counted(
            "rest_client_requests_total",
            code=code,
            method="GET",
            host="api",
        )

    succeeded = requests("200")
    failed = requests("<error>")
    seconds = counted("rest_client_request_duration_seconds_sum", verb="GET", host="api")
    server.delay_seconds = 2.0
    server.script = [OSError, OK]
    await server.get()

    assert succeeded() == 1
    assert failed() == 1
    assert seconds() == pytest.approx(2.0)


async def test_request_has_the_expected_headers_and_no_others(server: Server) -> None:
    config = ClusterConfig(
        server="http://api/k8s",
        as_user="jane",
        as_groups=("a", "b"),
    )
    async with connected(server, config):
        await server.client.patch(
            LEASES,
            KEY,
            b'{"a":1}',
            patch_type=PatchType.MERGE,
            subresource="status",
        )
    (sent,) = server.requests
    assert sent == (
        "PATCH /k8s/apis/coordination.k8s.io/v1/namespaces/n/leases/l/status?fieldManager=m HTTP/1.1\r\n"
        "Host: api\r\n"
        "Accept: application/json\r\n"
        "Content-Type: application/merge-patch+json\r\n"
        "Content-Length: 7\r\n"
        "User-Agent: u/1\r\n"
        "Impersonate-User: jane\r\n"
        "Impersonate-Group: a\r\n"
        "Impersonate-Group: b\r\n"
        "\r\n"
        '{"a":1}'
    )


METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
OF_BODY = {"Content-Type": "application/json", "Content-Length": "2"}
COMPRESSED = answer(200, gzip.compress(NO_LEASES), Content_Encoding="gzip")


@cases(
    "call response headers sent_body",
    read_without_a_length=(Server.get, OK, {}, ""),
    delete=(Server.delete, OK, {"Content-Length": "0"}, ""),
    create=(Server.create, OK, OF_BODY, "{}"),
    only_the_metadata_is_returned=(Server.replace, OK, {"Accept": METADATA, **OF_BODY}, "{}"),
    only_lists_are_compressed=(Server.list_page, COMPRESSED, {"Accept-Encoding": "gzip"}, ""),
)
async def test_headers_of_each_verb(
    server: Server,
    call: Call,
    response: bytes,
    headers: dict[str, str],
    sent_body: str,
) -> None:
    server.default = response
    await call(server)
    (request,) = server.requests
    common = {"Host": "api", "Accept": "application/json", "User-Agent": "u/1"}
    assert headers_of(request) == {**common, **headers}
    assert body_of(request) == sent_body


@cases(
    "body deleted",
    gone=(b'{"kind":"Status","status":"Success"}', True),
    finalizers_remain=(LEASE, True),
    of_a_proxy=(b"{}", False),
    a_page=(b"<html>", False),
)
async def test_only_the_servers_answer_to_a_delete_is_one(
    server: Server, body: bytes, deleted: bool
) -> None:
    server.default = answer(200, body)
    try:
        await server.client.delete(LEASES, KEY, uid="u")
    except ConnectionFailed:
        assert not deleted
    else:
        assert deleted
    (request,) = server.requests
    assert headers_of(request)["Content-Type"] == "application/json"
    assert '"preconditions":{"uid":"u"}' in body_of(request)


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (300, "Odd", ApiError),
        (401, "Unauthorized", Unauthorized),
        (404, "NotFound", NotFound),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", AlreadyExists),
        (410, "Expired", Expired),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", TooManyRequests),
        (500, "InternalError", ServerError),
    ],
)
async def test_api_error_is_typed_and_names_the_request(
    server: Server,
    status: int,
    reason: str,
    kind: type[ApiError],
) -> None:
    body = json.dumps({"kind": "Status", "reason": reason, "message": "because"}).encode()
    server.default = answer(status, body)
    with pytest.raises(kind, match=f"GET leases n/l: {status} {reason}: because") as raised:
        await server.get()
    assert type(raised.value) is kind
    assert raised.value.code == status


@pytest.mark.parametrize("body", [b"404 page not found", b"{}", b'{"kind":"Status"}'])
async def test_a_404_of_a_proxy_does_not_mean_that_the_object_is_gone(
    server: Server, body: bytes
) -> None:
    server.default = answer(404, body)
    with pytest.raises(ApiError) as raised:
        await server.get()
    assert not isinstance(raised.value, NotFound)
    assert raised.value.code == 404


async def test_fence_is_checked_when_a_write_is_sent_and_on_each_retry(server: Server) -> None:
    checks = 0

    def check() -> None:
        nonlocal checks
        checks += 1
        if checks > 2:
            raise ApiError("fenced")

    server.script = [ConnectionResetError, answer(429, Retry_After="1")]
    async with connected(server, before_send=check):
        with pytest.raises(ApiError, match="fenced"):
            await server.patch()
    assert len(server.requests) == 2
    assert checks == 3


async def test_fence_is_checked_after_connecting(server: Server) -> None:
    """Dialing takes time, and the lease may be lost meanwhile."""
    leading = True

    def check() -> None:
        if not leading:
            raise ApiError("fenced")

    async def slow_dial() -> HttpConnection:
        await asyncio.sleep(5)
        return await Server.dial(server)

    server.dial = slow_dial  # type: ignore[method-assign]
    async with connected(server, before_send=check):
        writing = asyncio.create_task(server.create())
        await asyncio.sleep(1)
        leading = False
        with pytest.raises(ApiError, match="fenced"):
            await writing
    assert not server.requests


async def test_idle_connections_are_closed_after_90_s_and_the_newest_is_used(
    server: Server,
) -> None:
    await server.get_at_once(3)
    await asyncio.sleep(80)
    await server.get()
    await asyncio.sleep(11)
    await server.get()
    await asyncio.sleep(0)
    assert sorted(connection.lost for connection in server.connections) == [False, True, True]


async def test_a_cancelled_request_leaves_its_place_to_others(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MAX_CONNECTIONS", 1)
    server.script = [None]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await server.get()
    await server.get()


async def test_watch_decodes_events_in_any_portions_and_detects_an_incomplete_one(
    server: Server,
) -> None:
    event = b'{"type":"ADDED","object":%s}\n' % LEASE
    body = event * 2 + event[:-5]
    for size in (1, 50, len(body)):
        server.script = [STREAM]
        async with server.watching() as events:
            connection = server.connections[-1]
            for begin in range(0, len(body), size):
                connection.receive(chunk(body[begin : begin + size]))
            connection.receive(chunk(b""))
            for _ in range(2):
                assert (await anext(events)).resource_version == "7"
            with pytest.raises(ConnectionFailed, match="in the middle of an event"):
                await anext(events)


async def test_server_now_follows_the_date_header(server: Server) -> None:
    server.default = answer(200, LEASE, Date="Sat, 21 Nov 2026 10:00:00 GMT")
    await server.get()
    await asyncio.sleep(60)
    assert server.client.server_now().isoformat() == "2026-11-21T10:01:00+00:00"
