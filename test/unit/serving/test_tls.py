"""Certificates that we issue, and the TLS context of a server that loads them."""

import ssl
import subprocess
import sys
from contextlib import suppress

import pytest
from cryptography import x509
from support.certificates import issued

from kruise_probe.serving.server_tls import ServerTls


def handshake(server: ssl.SSLContext, authority: bytes, name: str = "localhost") -> None:
    """Do a handshake in memory.

    Raises:
        ssl.SSLError: the client does not accept the server.
    """
    to_server = ssl.MemoryBIO()
    to_client = ssl.MemoryBIO()
    context = ssl.create_default_context(cadata=authority.decode())
    client = context.wrap_bio(to_client, to_server, server_hostname=name)
    accepted = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for side in (client, accepted):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    assert client.version()


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_a_client_with_strict_checks_accepts_an_issued_certificate(name: str) -> None:
    tls = ServerTls()
    certificate = issued("localhost", "127.0.0.1")
    tls.load(certificate.certificate + certificate.key)

    handshake(tls.context, certificate.certificate, name)


def test_a_certificate_is_for_a_server_and_signs_no_other() -> None:
    extensions = x509.load_pem_x509_certificate(issued().certificate).extensions
    usage = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value

    assert list(usage) == [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_the_program_prints_a_certificate_that_a_server_can_load() -> None:
    command = [sys.executable, "-m", "kruise_probe.serving.certificates"]
    printed = subprocess.check_output(command, timeout=30)
    tls = ServerTls()

    assert tls.load(printed)
    assert tls.loaded.is_set()


def test_a_key_that_does_not_match_leaves_the_certificate_before_in_use() -> None:
    tls = ServerTls()
    certificate = issued()
    tls.load(certificate.certificate + certificate.key)

    with pytest.raises(ssl.SSLError):
        tls.load(issued().certificate + certificate.key)

    handshake(tls.context, certificate.certificate)
