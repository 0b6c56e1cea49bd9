"""TLS to the API server: CAs, client certificates, and their rotation."""

import asyncio
import json
import socket
import ssl
import stat
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support.cases import cases
from support.kubeconfig import kubeconfig
from support.scripted_http import Received, ScriptedHttpServer, answer, refusal

from kruise_probe.api.errors import ConnectionFailed, Unauthorized
from kruise_probe.api.resources import LEASES
from kruise_probe.client.config import ClusterConfig, load_config
from kruise_probe.client.rest import RestClient

pytestmark = pytest.mark.sockets

Part = dict[str, object]


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, a server certificate for `kubernetes.default` and 127.0.0.1, and a client's."""
    folder = tmp_path_factory.mktemp("pki")

    def openssl(*arguments: str) -> None:
        command = ["openssl", *arguments]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=30)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=ca")
    for name, alternatives in (
        ("server", "DNS:kubernetes.default"),
        ("ip", "IP:127.0.0.1"),
        ("client", "DNS:me"),
        ("renewed", "DNS:me"),
    ):
        openssl(
            "req", "-x509", *key, "-keyout", f"{name}.key", "-out", f"{name}.crt", "-CA", "ca.crt",
            "-CAkey", "ca.key", "-subj", f"/CN={name}", "-addext", f"subjectAltName={alternatives}",
            "-addext", "basicConstraints=critical,CA:FALSE",
        )  # fmt: skip
    openssl(
        "req", "-x509", *key, "-keyout", "stranger.key", "-out", "stranger.crt", "-subj", "/CN=s"
    )
    return folder


def server_tls(pki: Path, name: str, *, ask_for_client: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / f"{name}.crt", pki / f"{name}.key")
    if ask_for_client:
        context.load_verify_locations(pki / "ca.crt")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def config_of(folder: Path, server: str, cluster: Part, user: Part) -> ClusterConfig:
    """What the client reads from a kubeconfig of these parts."""
    path = kubeconfig(folder / "kubeconfig", cluster={"server": server, **cluster}, user=user)
    return load_config(path, {})


def client_of(config: ClusterConfig) -> RestClient:
    return RestClient(config=config, field_manager="m", user_agent="u")


def trusting(authority: Path) -> Part:
    return {"certificate-authority": str(authority)}


async def read_version(client: RestClient) -> bytes:
    return await client.request_raw("GET", "/version")


async def versions(client: RestClient) -> list[bytes]:
    """Three requests at once, on connections of their own."""
    async with asyncio.TaskGroup() as group:
        requests = [group.create_task(read_version(client)) for _ in range(3)]
    return [each.result() for each in requests]


async def version_of(tmp_path: Path, tls: ssl.SSLContext, cluster: Part, user: Part) -> bytes:
    """What a client of such a kubeconfig reads from a server with such a certificate."""
    async with (
        ScriptedHttpServer([answer(200, {"major": "1"})]).running(tls) as server,
        client_of(config_of(tmp_path, server.url, cluster, user)) as client,
    ):
        return await read_version(client)


@cases(
    "certificate cluster",
    known_authority=("ip", {"certificate-authority": "ca.crt"}),
    tls_server_name=(
        "server",
        {"certificate-authority": "ca.crt", "tls-server-name": "kubernetes.default"},
    ),
    not_verified=("server", {"insecure-skip-tls-verify": True}),
)
async def test_server_is_trusted_as_configured_in_the_kubeconfig(
    pki: Path, tmp_path: Path, certificate: str, cluster: Part
) -> None:
    if "certificate-authority" in cluster:
        cluster = {**cluster, "certificate-authority": str(pki / "ca.crt")}

    assert b"major" in await version_of(tmp_path, server_tls(pki, certificate), cluster, {})


@cases(
    "certificate authority words",
    unknown_authority=("ip", "", "CERTIFICATE_VERIFY_FAILED"),
    another_name=("server", "ca.crt", "CERTIFICATE_VERIFY_FAILED.*127.0.0.1"),
)
async def test_untrusted_server_is_an_error_with_the_reason(
    pki: Path, tmp_path: Path, certificate: str, authority: str, words: str
) -> None:
    cluster = trusting(pki / authority) if authority else {}
    with pytest.raises(ConnectionFailed, match=words):
        await version_of(tmp_path, server_tls(pki, certificate), cluster, {})


class Accepting:
    """An act that accepts only the client certificate of `name`."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def __call__(self, received: Received, writer: asyncio.StreamWriter) -> None:
        subject = dict(each[0] for each in writer.get_extra_info("peercert")["subject"])
        allowed = subject["commonName"] == self.name
        await (answer(200, {"major": "1"}) if allowed else refusal(401))(received, writer)


def _files(pki: Path, folder: Path) -> Part:
    return {"client-certificate": str(folder / "now.pem")}


def _plugin(pki: Path, folder: Path) -> Part:
    """A plugin that prints a file."""
    path = folder / "plugin"
    path.write_text(f"#!/bin/sh\ncat {folder}/credential\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path)}}


def _issue(pki: Path, folder: Path, name: str) -> None:
    """Certificate and key in one file, as kubelet keeps them, and as a plugin prints them."""
    certificate, key = ((pki / f"{name}.{kind}").read_text() for kind in ("crt", "key"))
    (folder / "now.pem").write_text(certificate + key)
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"clientCertificateData": certificate, "clientKeyData": key},
    }
    (folder / "credential").write_text(json.dumps(credential))


@pytest.mark.parametrize("user", [_files, _plugin])
async def test_replaced_client_certificate_is_used_without_restart(
    pki: Path, tmp_path: Path, user: Callable[[Path, Path], Part]
) -> None:
    """On every connection: those that were kept presented the old one."""
    accepting = Accepting("client")
    _issue(pki, tmp_path, "client")
    tls = server_tls(pki, "ip", ask_for_client=True)
    async with ScriptedHttpServer([accepting]).running(tls) as server:
        config = config_of(tmp_path, server.url, trusting(pki / "ca.crt"), user(pki, tmp_path))
        async with client_of(config) as client:
            await versions(client)
            accepting.name = "renewed"
            with pytest.raises(Unauthorized):
                await read_version(client)
            _issue(pki, tmp_path, "renewed")
            assert await read_version(client)
            assert len(await versions(client)) == 3


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
    user: Callable[[Path, Path], Part],
    version: ssl.TLSVersion,
    alerts: bool,
) -> None:
    """There is no 401. In TLS 1.3 the client learns of the failure only after the handshake."""
    _issue(pki, tmp_path, "stranger")
    tls = server_tls(pki, "ip", ask_for_client=True)
    tls.maximum_version = version
    async with ScriptedHttpServer([answer(200, {})] * 2).running(tls) as server:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"https://127.0.0.1:{listener.getsockname()[1]}" if alerts else server.url
            threading.Thread(target=_serve_with_alerts, args=(listener, tls), daemon=True).start()
            config = config_of(tmp_path, url, trusting(pki / "ca.crt"), user(pki, tmp_path))
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
    async with ScriptedHttpServer([answer(200, {"major": "1"})] * 2).running(tls) as server:
        config = config_of(tmp_path, server.url, trusting(pki / "ca.crt"), _files(pki, tmp_path))
        if damage == "gone":
            (tmp_path / "now.pem").unlink()
        elif damage == "no-pem":
            (tmp_path / "now.pem").write_text("no PEM")
        else:
            key = (pki / "ca.key").read_bytes()
            (tmp_path / "now.pem").write_bytes((pki / "renewed.crt").read_bytes() + key)
        assert not await config.credentials.renew(None, config.credentials.version)
        async with client_of(config) as client:
            assert await read_version(client)


@cases("broken_between", valid=False, invalid_between=True)
async def test_replaced_ca_file_is_trusted_without_restart(
    pki: Path, tmp_path: Path, broken_between: bool
) -> None:
    """Its comments may have any characters."""
    authority = tmp_path / "ca.crt"
    authority.write_bytes((pki / "client.crt").read_bytes())
    script = [answer(200, {"major": "1"})] * 3
    async with ScriptedHttpServer(script).running(server_tls(pki, "ip")) as server:
        config = config_of(tmp_path, server.url, trusting(authority), {})
        async with client_of(config) as client:
            with pytest.raises(ConnectionFailed, match="CERTIFICATE_VERIFY_FAILED"):
                await read_version(client)
            if broken_between:
                authority.write_text("not a certificate")
                with pytest.raises(ConnectionFailed, match="CERTIFICATE_VERIFY_FAILED"):
                    await read_version(client)
            authority.write_bytes("# Zürich\n".encode() + (pki / "ca.crt").read_bytes())
            assert all(b"major" in each for each in await versions(client))
