"""Client certificates that the webhook requires."""

import ssl
from datetime import timedelta
from pathlib import Path

import pytest

from kruise_probe.api.errors import FatalError
from kruise_probe.api.times import utc_now
from kruise_probe.serving.certificates import issue_certificate
from kruise_probe.webhook.cert_watcher import WebhookTls

FLAG = "--webhook-client-ca-file"


def test_without_a_client_ca_no_client_certificate_is_required() -> None:
    assert WebhookTls().context.verify_mode is ssl.CERT_NONE


def test_with_a_client_ca_a_client_certificate_is_required(tmp_path: Path) -> None:
    path = tmp_path / "ca.crt"
    issued = issue_certificate(["x"], now=utc_now(), lifetime=timedelta(hours=1))
    path.write_bytes(issued.authority)
    tls = WebhookTls()
    tls.require_client_certificates(path, flag=FLAG)

    assert tls.context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("text", [None, "", "no certificate"])
def test_the_error_of_a_bad_ca_file_has_flag_and_remedy(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "ca.crt"
    if text is not None:
        path.write_text(text)

    with pytest.raises(FatalError, match=rf"{FLAG}={path}: cannot load .*PEM file of the CA"):
        WebhookTls().require_client_certificates(path, flag=FLAG)
