"""TLS to the API server: CAs, client certificates, and their rotation."""

import asyncio
import json
import socket
import ssl
import stat
import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from support.cases import cases
from support.kubeconfig import kubeconfig
from support.scripted_http import Act, Received, ScriptedHttpServer, answer, refusal

from kruise_probe.api.errors import ConnectionFailed, Unauthorized
from kruise_probe.api.resources import LEASES
from kruise_probe.client.config import ClusterConfig, load_config
from kruise_probe.client.rest import RestClient

pytestmark = pytest.mark.sockets

Part = dict[str, object]
NO_USER: Part = {}
VERSION = answer(200, {"major": "1"})


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, a server certificate for `kubernetes.default` and 127.0.0.1, and a client's."""
    folder = tmp_path_factory.mktemp("pki")

    def issue(name: str, *options: str) -> None:
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        files = ["-keyout", f"{name}.key", "-out", f"{name}.crt"]
        subprocess.run(
            ["openssl", "req", "-x509", *key, *files, "-subj", f"/CN={name}", *options],
            cwd=folder,
            check=True,
            capture_output=True,
            timeout=30,
        )

    issue("ca")
    for name, alternatives in (
        ("server", "DNS:kubernetes.default"),
        ("ip", "IP:127.0.0.1"),
        ("client", "DNS:me"),
        ("renewed", "DNS:me"),
    ):
        extensions = [
            *("-addext", f"subjectAltName={alternatives}"),
            *("-addext", "basicConstraints=critical,CA:FALSE"),
        ]
        issue(
            name,
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            *extensions,
        )
    issue("stranger")
    return folder


def server_tls(pki: Path, name: str, *, ask_for_client: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / f"{name}.crt", pki / f"{name}.key")
    if ask_for_client:
        context.load_verify_locations(pki / "ca.crt")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def config_of(
    folder: Path,
    server: str,
    cluster: Part,
    user: Part = NO_USER,
) -> ClusterConfig:
    """What the client reads from a kubeconfig of these parts."""
    path = kubeconfig(folder / "kubeconfig", cluster={"server": server, **cluster}, user=user)
    return load_config(path, {})


def client_of(config: ClusterConfig) -> RestClient:
    return RestClient(config=config, field_manager="m", user_agent="u")


def trusting(authority: Path) -> Part:
    return {"certificate-authority": str(authority)}


async def read_version(client: RestClient) -> bytes:
    return await client.request_raw("GET", "/version")


async def read_versions(client: RestClient) -> list[bytes]:
    """Three requests at once, on connections of their own."""
    async with asyncio.TaskGroup() as group:
        requests = [group.create_task(read_version(client)) for _ in range(3)]
    return [request.result() for request in requests]


@asynccontextmanager
async def serving(
    folder: Path,
    tls: ssl.SSLContext,
    cluster: Part,
    user: Part = NO_USER,
    act: Act = VERSION,
) -> AsyncIterator[RestClient]:
    """A client with this kubeconfig, and the TLS server it connects to."""
    async with (
        ScriptedHttpServer([act]).running(tls) as server,
        client_of(config_of(folder, server.url, cluster, user)) as client,
    ):
        yield client


@cases(
    "certificate trusts_authority options",
    known_authority=("ip", True, {}),
    tls_server_name=("server", True, {"tls-server-name": "kubernetes.default"}),
    not_verified=("server", False, {"insecure-skip-tls-verify": True}),
)
async def test_server_is_trusted_as_configured_in_the_kubeconfig(
    pki: Path,
    tmp_path: Path,
    certificate: str,
    trusts_authority: bool,
    options: Part,
) -> None:
    authority = trusting(pki / "ca.crt") if trusts_authority else {}
    tls = server_tls(pki, certificate)

    async with serving(tmp_path, tls, authority | options) as client:
        assert b"major" in await read_version(client)


@cases(
    "certificate trusts_authority words",
    unknown_authority=("ip", False, "CERTIFICATE_VERIFY_FAILED"),
    another_name=("server", True, "CERTIFICATE_VERIFY_FAILED.*127.0.0.1"),
)
async def test_untrusted_server_is_an_error_with_the_reason(
    pki: Path,
    tmp_path: Path,
    certificate: str,
    trusts_authority: bool,
    words: str,
) -> None:
    authority = trusting(pki / "ca.crt") if trusts_authority else {}
    tls = server_tls(pki, certificate)
    async with serving(tmp_path, tls, authority) as client:
        with pytest.raises(ConnectionFailed, match=words):
            await read_version(client)


class Accepting:
    """An act that accepts only the client certificate of `name`."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def __call__(self, received: Received, writer: asyncio.StreamWriter) -> None:
        certificate = writer.get_extra_info("peercert")
        ((common_name,),) = certificate["subject"]
        act = VERSION if common_name == ("commonName", self.name) else refusal(401)
        await act(received, writer)


def _files(folder: Path) -> Part:
    return {"client-certificate": str(folder / "now.pem")}


def _plugin(folder: Path) -> Part:
    """A plugin that prints a file."""
    path = folder / "plugin"
    path.write_text(f"#!/bin/sh\ncat {folder}/credential\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path)}}


def _issue(pki: Path, folder: Path, name: str) -> None:
    """Certificate and key in one file, as kubelet keeps them, and as a plugin prints them."""
    certificate = (pki / f"{name}.crt").read_text()
    key = (pki / f"{name}.key").read_text()
    (folder / "now.pem").write_text(certificate + key)
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"clientCertificateData": certificate, "clientKeyData": key},
    }
    (folder / "credential").write_text(json.dumps(credential))


@pytest.mark.parametrize("user", [_files, _plugin])
async def test_replaced_client_certificate_is_used_without_restart(
    pki: Path, tmp_path: Path, user: Callable[[Path], Part]
) -> None:
    """On every connection: those that were kept presented the old one."""
    accepting = Accepting("client")
    _issue(pki, tmp_path, "client")
    tls = server_tls(pki, "ip", ask_for_client=True)
    cluster = trusting(pki / "ca.crt")
    async with serving(tmp_path, tls, cluster, user(tmp_path), accepting) as client:
        await read_versions(client)
        accepting.name = "renewed"
        with pytest.raises(Unauthorized):
            await read_version(client)
        _issue(pki, tmp_path, "renewed")
        assert await read_version(client)
        await read_versions(client)


def _serve_with_alerts(listener: socket.socket, tls: ssl.SSLContext) -> None:
    """Blocking TLS sends an alert before it closes; asyncio's does not."""
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with tls.wrap_socket(connection, True, do_handshake_on_connect=False) as served:
                try:
                    served.do_handshake()
                    served.recv(65536)
                    served.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                except ssl.SSLError:
                    socket.socket.shutdown(served, socket.SHUT_WR)
                    while socket.socket.recv(served, 65536):
                        pass


RELOADED = {
    "files-1.2": (_files, ssl.TLSVersion.TLSv1_2, True),
    "files-1.3": (_files, ssl.TLSVersion.TLSv1_3, True),
    "files-1.3-closed": (_files, ssl.TLSVersion.TLSv1_3, False),
    "plugin-1.2-closed": (_plugin, ssl.TLSVersion.TLSv1_2, False),
}


@cases("user version alerts", **RELOADED)
async def test_client_certificate_is_reloaded_after_a_failed_handshake(
    pki: Path,
    tmp_path: Path,
    user: Callable[[Path], Part],
    version: ssl.TLSVersion,
    alerts: bool,
) -> None:
    """There is no 401. In TLS 1.3 the client learns of the failure only after the handshake."""
    _issue(pki, tmp_path, "stranger")
    tls = server_tls(pki, "ip", ask_for_client=True)
    tls.maximum_version = version
    async with ScriptedHttpServer([answer(200, {})]).running(tls) as server:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            _, port = listener.getsockname()
            url = f"https://127.0.0.1:{port}" if alerts else server.url
            threading.Thread(
                target=_serve_with_alerts,
                args=(listener, tls),
                daemon=True,
            ).start()
            config = config_of(
                tmp_path,
                url,
                trusting(pki / "ca.crt"),
                user(tmp_path),
            )
            async with client_of(config) as client:
                with pytest.raises(ConnectionFailed, match="(?i)alert" if alerts else "closed"):
                    await client.create(LEASES, b"{}", namespace="n")
                _issue(pki, tmp_path, "client")
                assert await read_version(client) == b"{}"
            listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("damage", ["gone", "no-pem", "another-key"])
async def test_unusable_new_client_certificate_is_not_used(
    pki: Path, tmp_path: Path, damage: str
) -> None:
    _issue(pki, tmp_path, "client")
    tls = server_tls(pki, "ip", ask_for_client=True)
    file = tmp_path / "now.pem"
    cluster = trusting(pki / "ca.crt")
    async with serving(tmp_path, tls, cluster, _files(tmp_path)) as client:
        if damage == "gone":
            file.unlink()
        elif damage == "no-pem":
            file.write_text("no PEM")
        else:
            certificate = (pki / "renewed.crt").read_text()
            file.write_text(certificate + (pki / "ca.key").read_text())
        credentials = client.config.credentials
        assert not await credentials.renew(None, credentials.version)
        assert await read_version(client)


@cases("broken_between", valid=False, invalid_between=True)
async def test_replaced_ca_file_is_trusted_without_restart(
    pki: Path, tmp_path: Path, broken_between: bool
) -> None:
    """Its comments may have any characters."""
    authority = tmp_path / "ca.crt"
    authority.write_bytes((pki / "client.crt").read_bytes())
    async with serving(tmp_path, server_tls(pki, "ip"), trusting(authority)) as client:
        with pytest.raises(ConnectionFailed, match="CERTIFICATE_VERIFY_FAILED"):
            await read_version(client)
        if broken_between:
            authority.write_text("not a certificate")
            with pytest.raises(ConnectionFailed, match="CERTIFICATE_VERIFY_FAILED"):
                await read_version(client)
        authority.write_bytes("# Zürich\n".encode() + (pki / "ca.crt").read_bytes())
        assert all(b"major" in version for version in await read_versions(client))
