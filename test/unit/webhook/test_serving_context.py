"""What the webhook requires of its clients."""

import ssl
from pathlib import Path

import pytest

from kruise_probe.api.errors import FatalError
from kruise_probe.serving.self_signed import make_pair
from kruise_probe.webhook.serving_context import ServingContext

FLAG = "--webhook-client-ca-file"


def test_without_an_authority_clients_need_no_certificate() -> None:
    assert ServingContext().context.verify_mode is ssl.CERT_NONE


def test_with_an_authority_clients_need_its_certificate(tmp_path: Path) -> None:
    path = tmp_path / "ca.crt"
    path.write_bytes(make_pair().certificate)
    serving = ServingContext()
    serving.require_clients_of(path, flag=FLAG)

    assert serving.context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("text", [None, "", "no certificate"])
def test_an_unusable_file_is_named_with_its_flag(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "ca.crt"
    if text is not None:
        path.write_text(text)

    with pytest.raises(FatalError, match=rf"{FLAG}={path}: .*PEM file of the CA"):
        ServingContext().require_clients_of(path, flag=FLAG)
