"""Certificates that others keep as files, and client certificates that the webhook requires."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from support.background import background
from support.cases import cases
from support.certificates import issued
from support.metrics import counted, metric

from kruise_probe.api.errors import FatalError
from kruise_probe.serving import server_tls
from kruise_probe.serving.certificates import expires_at
from kruise_probe.serving.server_tls import (
    POLL_SECONDS,
    ServerTls,
    certificate_files,
    self_signed_certificate,
)
from kruise_probe.webhook.server import WebhookTls

FLAG = "--webhook-client-ca-file"


@cases(
    "text reason",
    missing=(None, "No such file or directory"),
    empty=("", ".*NO_CERTIFICATE_OR_CRL_FOUND.*"),
    no_certificate=("no certificate", ".*NO_CERTIFICATE_OR_CRL_FOUND.*"),
)
def test_the_error_of_a_bad_ca_file_has_flag_reason_and_remedy(
    tmp_path: Path, text: str | None, reason: str
) -> None:
    path = tmp_path / "ca.crt"
    if text is not None:
        path.write_text(text)

    expected = rf"{FLAG}={path}: cannot load the CA: {reason}; use a PEM file of the CA"
    with pytest.raises(FatalError, match=expected):
        WebhookTls().require_client_certificates(path)


def write_pair(folder: Path) -> bytes:
    """Write a new certificate and its key; return what the server loads of them."""
    pair = issued()
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    return pair.certificate + b"\n" + pair.key


@pytest.fixture(autouse=True)
def in_this_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a file in a thread takes real time, which virtual time would pass over."""

    async def run(read: Callable[[], bytes]) -> bytes:
        return read()

    monkeypatch.setattr(server_tls, "run_blocking", run)


async def test_files_are_loaded_at_once_and_again_when_they_change(tmp_path: Path) -> None:
    tls = WebhookTls()
    watcher = certificate_files(tls, tmp_path)
    first = write_pair(tmp_path)
    async with background(watcher.run()):
        await asyncio.sleep(0.1)
        assert watcher.last_error == ""
        assert tls._loaded_pem == first
        second = write_pair(tmp_path)
        await asyncio.sleep(POLL_SECONDS)
        assert tls._loaded_pem == second


async def test_an_unreadable_pair_is_reported_once_and_the_last_one_stays(tmp_path: Path) -> None:
    tls = WebhookTls()
    watcher = certificate_files(tls, tmp_path)
    assert str(tmp_path) in watcher.last_error
    with capture_logs() as logs:
        async with background(watcher.run()):
            await asyncio.sleep(3.5 * POLL_SECONDS)
            assert "tls.crt" in watcher.last_error
            (warning,) = logs
            assert warning["log_level"] == "warning"
            loaded = write_pair(tmp_path)
            await asyncio.sleep(POLL_SECONDS)
            assert watcher.last_error == ""
            (tmp_path / "tls.key").write_text("no key")
            await asyncio.sleep(POLL_SECONDS)

    assert watcher.last_error
    assert tls._loaded_pem == loaded
    assert [log["log_level"] for log in logs] == ["warning", "info", "warning"]


async def test_a_self_signed_certificate_is_issued_once_with_retries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tls = ServerTls()
    monkeypatch.setattr(server_tls, "ISSUE_SECONDS", 0.0)
    async with background(self_signed_certificate(tls).run()):
        await asyncio.sleep(0.1)
        assert not tls.loaded.is_set()
        monkeypatch.setattr(server_tls, "ISSUE_SECONDS", 30.0)
        await asyncio.sleep(POLL_SECONDS)
        loaded = tls._loaded_pem
        await asyncio.sleep(2 * POLL_SECONDS)

    assert loaded
    assert tls._loaded_pem == loaded


def test_metrics_have_the_loaded_certificate() -> None:
    reads = counted("certwatcher_read_certificate_total")
    tls = WebhookTls()
    pair = issued(hours=7)
    pem = pair.certificate + pair.key

    assert tls.load(pem)
    assert not tls.load(pem)
    assert reads() == 1
    expires = "kruise_probe_webhook_certificate_expires_timestamp_seconds"
    assert metric(expires) == expires_at(pem).timestamp()
