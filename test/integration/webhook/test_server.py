"""The webhook's server over real TLS, with certificates that somebody else keeps as files."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.background import background
from support.marker_table import GOOD
from support.patience import PATIENCE_SECONDS

from kruise_probe.api.times import utc_now
from kruise_probe.serving import tls
from kruise_probe.serving.certificates import IssuedCertificate, issue_certificate
from kruise_probe.serving.http_server import HttpServer
from kruise_probe.webhook.server import (
    MAX_REVIEW_BYTES,
    WebhookTls,
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


async def test_a_review_larger_than_an_api_server_sends_is_refused(tmp_path: Path) -> None:
    write_pair(tmp_path, pair := issued())
    async with served(tmp_path) as server:
        await until_served(server, pair)
        review = json.dumps(REVIEW).encode()
        largest = review + b" " * (MAX_REVIEW_BYTES - len(review))

        assert (await post(server, pair.authority, largest))[0] == 200
        assert (await post(server, pair.authority, largest + b" "))[0] == 413
