"""The webhook's server over real TLS, with certificates that somebody else keeps as files."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.background import background
from support.builders import marker, pod_wire
from support.marker_table import GOOD
from support.patience import PATIENCE_SECONDS

from kruise_probe.api.times import utc_now
from kruise_probe.manifests.webhook import MUTATE_PODS, VALIDATE_MARKERS
from kruise_probe.serving import tls
from kruise_probe.serving.certificates import IssuedCertificate, issue_certificate
from kruise_probe.serving.http_server import HttpServer
from kruise_probe.webhook.server import (
    MAX_REVIEW_BYTES,
    WebhookOptions,
    WebhookTls,
    build_webhook,
    review_server,
)
from kruise_probe.webhook.validating import review_marker

PATH = "/validate"
REVIEW: dict[str, Any] = {
    "request": {
        "uid": "u",
        "operation": "CREATE",
        "object": {"metadata": {"name": "m"}, "spec": GOOD},
    }
}


def issued() -> IssuedCertificate:
    return issue_certificate(["localhost"], now=utc_now(), lifetime=timedelta(hours=1))


def write_pair(folder: Path, pair: IssuedCertificate) -> None:
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)


@pytest.fixture(autouse=True)
def polls_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "POLL_SECONDS", 0.02)


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[HttpServer]:
    context = WebhookTls()
    server = review_server("127.0.0.1:0", context, {PATH: review_marker})
    server.bind()
    async with background(tls.certificate_files(context, folder).run()), background(server.run()):
        yield server


def trusting(authority: bytes) -> ssl.SSLContext:
    """Without the strict checks of Python 3.13, which Go does not have."""
    context = ssl.create_default_context(cadata=authority.decode())
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


async def post(
    server: HttpServer, authority: bytes, body: bytes, path: str = PATH
) -> tuple[int, str]:
    tls = trusting(authority)
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        aiohttp.ClientSession() as session,
        session.post(
            f"https://localhost:{server.port}{path}", data=BytesIO(body), ssl=tls
        ) as answer,
    ):
        return answer.status, await answer.text()


async def until_served(server: HttpServer, pair: IssuedCertificate, path: str = PATH) -> None:
    for _ in range(500):
        try:
            if (await post(server, pair.authority, json.dumps(REVIEW).encode(), path))[0] == 200:
                return
        except aiohttp.ClientConnectorError:
            await asyncio.sleep(0.02)
    raise AssertionError("the certificate is not served")


async def test_a_review_is_answered(tmp_path: Path) -> None:
    write_pair(tmp_path, pair := issued())
    async with served(tmp_path) as server:
        await until_served(server, pair)

        code, text = await post(server, pair.authority, json.dumps(REVIEW).encode())

    assert code == 200
    assert json.loads(text)["response"] == {"uid": "u", "allowed": True}


async def test_one_connection_carries_review_after_review(tmp_path: Path) -> None:
    """An API server keeps its connection; one that stalls makes it wait for its whole timeout."""
    write_pair(tmp_path, pair := issued())
    body = json.dumps(REVIEW).encode()
    async with served(tmp_path) as server:
        await until_served(server, pair)
        reader, writer = await asyncio.open_connection(
            "localhost", server.port, ssl=trusting(pair.authority)
        )
        async with asyncio.timeout(PATIENCE_SECONDS):
            for _ in range(20):
                # In one piece, as Go sends it.
                head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                answer = await reader.readuntil(b"\r\n\r\n")
                assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
                length = int(answer.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                assert json.loads(await reader.readexactly(length))["response"]["allowed"] is True
        writer.close()


async def test_a_body_that_is_not_a_review_is_a_bad_request(tmp_path: Path) -> None:
    write_pair(tmp_path, pair := issued())
    async with served(tmp_path) as server:
        await until_served(server, pair)

        code, text = await post(server, pair.authority, b"{}")

    assert code == 400
    assert "not an AdmissionReview" in text


async def test_certificate_files_are_loaded_late_and_again_when_they_change(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        write_pair(tmp_path, first := issued())
        await until_served(server, first)
        (tmp_path / "tls.key").write_text("half of a change")
        (tmp_path / "tls.crt").write_bytes(issued().certificate)

        write_pair(tmp_path, second := issued())

        await until_served(server, second)
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await post(server, first.authority, b"{}")


async def test_a_review_larger_than_an_api_server_sends_is_refused(tmp_path: Path) -> None:
    write_pair(tmp_path, pair := issued())
    async with served(tmp_path) as server:
        await until_served(server, pair)
        review = json.dumps(REVIEW).encode()
        largest = review + b" " * (MAX_REVIEW_BYTES - len(review))

        assert (await post(server, pair.authority, largest))[0] == 200
        assert (await post(server, pair.authority, largest + b" "))[0] == 413


async def test_the_end_does_not_wait_for_idle_clients(tmp_path: Path) -> None:
    write_pair(tmp_path, pair := issued())
    tls = trusting(pair.authority)
    time = asyncio.get_running_loop().time
    async with served(tmp_path) as server:
        await until_served(server, pair)
        _, writer = await asyncio.open_connection("localhost", server.port, ssl=tls)
        begun = time()

    assert time() - begun < PATIENCE_SECONDS
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


@pytest.mark.parametrize("gate", [True, False])
async def test_pods_are_annotated_only_with_the_feature_gate(gate: bool, tmp_path: Path) -> None:
    write_pair(tmp_path, pair := issued())
    options = WebhookOptions("127.0.0.1:0", "kruise-system", gate, certificate_folder=str(tmp_path))
    unused: Any = (
        None  # with certificates from files, the webhook sends no request to the API server
    )
    webhook = build_webhook(unused, options, markers_of=lambda _: [marker()], now=utc_now)
    request = {"uid": "u", "operation": "CREATE", "namespace": "default", "object": pod_wire()}
    async with background(webhook.certificates.run()), background(webhook.server.run()):
        await until_served(webhook.server, pair, VALIDATE_MARKERS)
        body = json.dumps({"request": request}).encode()
        code, text = await post(webhook.server, pair.authority, body, MUTATE_PODS)

    assert code == 200
    response = json.loads(text)["response"]
    assert response["allowed"] is True
    assert ("patch" in response) is gate
