"""TLS to the API server: CAs, client certificates, and their rotation."""

import asyncio
import json
import ssl
import stat
import subprocess
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from support.scripted_http import Received, ScriptedHttpServer, answer, refusal

from kruise_probe.api.errors import ConnectionFailed, Unauthorized
from kruise_probe.client import dialer
from kruise_probe.client.config import load_config
from kruise_probe.client.rest import RestClient
from kruise_probe.client.tls import CAFile, tls_context

pytestmark = pytest.mark.sockets


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
    return folder


def server_tls(pki: Path, name: str, *, ask_for_client: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / f"{name}.crt", pki / f"{name}.key")
    if ask_for_client:
        context.load_verify_locations(pki / "ca.crt")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def write_kubeconfig(
    path: Path, server: str, cluster: dict[str, object], user: dict[str, object]
) -> None:
    content = {
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(content))


async def version_of(
    tmp_path: Path, tls: ssl.SSLContext, cluster: dict[str, object], user: dict[str, object]
) -> bytes:
    """What a client of such a kubeconfig reads from a server with such a certificate."""
    async with ScriptedHttpServer([answer(200, {"major": "1"})]).running(tls) as server:
        path = tmp_path / "kubeconfig"
        write_kubeconfig(path, server.url, cluster, user)
        config = load_config(str(path), {})
        async with RestClient(config=config, field_manager="m", user_agent="u") as client:
            return await client.get_raw("/version")


@pytest.mark.parametrize(
    ("certificate", "cluster"),
    [
        pytest.param("ip", {"certificate-authority": "ca.crt"}, id="known-authority"),
        pytest.param(
            "server",
            {"certificate-authority": "ca.crt", "tls-server-name": "kubernetes.default"},
            id="tls-server-name",
        ),
        pytest.param("server", {"insecure-skip-tls-verify": True}, id="not-verified"),
    ],
)
async def test_server_is_trusted_as_configured_in_the_kubeconfig(
    pki: Path, tmp_path: Path, certificate: str, cluster: dict[str, object]
) -> None:
    if "certificate-authority" in cluster:
        cluster = {**cluster, "certificate-authority": str(pki / "ca.crt")}

    assert b"major" in await version_of(tmp_path, server_tls(pki, certificate), cluster, {})


@pytest.mark.parametrize(
    ("certificate", "authority", "words"),
    [
        pytest.param("ip", "", "CERTIFICATE_VERIFY_FAILED", id="unknown-authority"),
        pytest.param("server", "ca.crt", "CERTIFICATE_VERIFY_FAILED.*127.0.0.1", id="another-name"),
    ],
)
async def test_untrusted_server_is_an_error_with_the_reason(
    pki: Path, tmp_path: Path, certificate: str, authority: str, words: str
) -> None:
    cluster: dict[str, object] = (
        {"certificate-authority": str(pki / authority)} if authority else {}
    )
    with pytest.raises(ConnectionFailed, match=words):
        await version_of(tmp_path, server_tls(pki, certificate), cluster, {})


async def test_tls_connection_reserves_less_than_64_kib(pki: Path, tmp_path: Path) -> None:
    """asyncio's own TLS reserves 256 KiB, and a manager has fifty connections."""
    async with ScriptedHttpServer([answer(200, {})]).running(server_tls(pki, "ip")) as server:
        path = tmp_path / "kubeconfig"
        write_kubeconfig(path, server.url, {"certificate-authority": str(pki / "ca.crt")}, {})
        config = load_config(str(path), {})
        async with RestClient(config=config, field_manager="m", user_agent="u") as client:
            tracemalloc.start(10)
            try:
                await client.get_raw("/version")
                snapshot = tracemalloc.take_snapshot()
            finally:
                tracemalloc.stop()
    dialed = tracemalloc.Filter(True, dialer.__file__, all_frames=True)
    reserved = sum(each.size for each in snapshot.filter_traces([dialed]).traces)
    assert 1024 < reserved < 64 * 1024


async def test_client_certificate_is_sent(pki: Path, tmp_path: Path) -> None:
    tls = server_tls(pki, "ip", ask_for_client=True)
    cluster: dict[str, object] = {"certificate-authority": str(pki / "ca.crt")}
    user: dict[str, object] = {
        "client-certificate": str(pki / "client.crt"),
        "client-key": str(pki / "client.key"),
    }

    assert b"major" in await version_of(tmp_path, tls, cluster, user)
    with pytest.raises(ConnectionFailed):
        await version_of(tmp_path, tls, cluster, {})


async def test_replaced_ca_file_is_trusted_without_restart(pki: Path, tmp_path: Path) -> None:
    authority, kubeconfig = tmp_path / "ca.crt", tmp_path / "kubeconfig"
    authority.write_bytes((pki / "client.crt").read_bytes())
    cluster: dict[str, object] = {"certificate-authority": str(authority)}
    script = [answer(200, {"major": "1"})] * 3
    async with ScriptedHttpServer(script).running(server_tls(pki, "ip")) as server:
        write_kubeconfig(kubeconfig, server.url, cluster, {})
        config = load_config(str(kubeconfig), {})
        async with RestClient(config=config, field_manager="m", user_agent="u") as client:
            with pytest.raises(ConnectionFailed, match="CERTIFICATE_VERIFY_FAILED"):
                await client.get_raw("/version")
            authority.write_text("not a certificate")
            with pytest.raises(ConnectionFailed, match="CERTIFICATE_VERIFY_FAILED"):
                await client.get_raw("/version")
            authority.write_bytes((pki / "ca.crt").read_bytes())
            async with asyncio.TaskGroup() as group:
                requests = [group.create_task(client.get_raw("/version")) for _ in range(3)]

    assert all(b"major" in each.result() for each in requests)


class Accepting:
    """An act that accepts only the client certificate of `name`."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def __call__(self, received: Received, writer: asyncio.StreamWriter) -> None:
        subject = dict(each[0] for each in writer.get_extra_info("peercert")["subject"])
        allowed = subject["commonName"] == self.name
        await (answer(200, {"major": "1"}) if allowed else refusal(401))(received, writer)


def _files(pki: Path, folder: Path) -> dict[str, object]:
    return {"client-certificate": str(folder / "now.pem")}


def _plugin(pki: Path, folder: Path) -> dict[str, object]:
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
    pki: Path, tmp_path: Path, user: Callable[[Path, Path], dict[str, object]]
) -> None:
    """On every connection: those that were kept presented the old one."""
    accepting = Accepting("client")
    _issue(pki, tmp_path, "client")
    cluster: dict[str, object] = {"certificate-authority": str(pki / "ca.crt")}
    tls = server_tls(pki, "ip", ask_for_client=True)
    async with ScriptedHttpServer([accepting]).running(tls) as server:
        write_kubeconfig(tmp_path / "kubeconfig", server.url, cluster, user(pki, tmp_path))
        config = load_config(str(tmp_path / "kubeconfig"), {})
        async with RestClient(config=config, field_manager="m", user_agent="u") as client:

            async def ask() -> list[bytes]:
                async with asyncio.TaskGroup() as group:
                    requests = [group.create_task(client.get_raw("/version")) for _ in range(3)]
                return [each.result() for each in requests]

            await ask()
            accepting.name = "renewed"
            with pytest.raises(Unauthorized):
                await client.get_raw("/version")
            _issue(pki, tmp_path, "renewed")
            assert await client.get_raw("/version")
            assert len(await ask()) == 3


@pytest.mark.parametrize("content", [None, b"\xff", b"no PEM"], ids=["gone", "binary", "no-pem"])
async def test_unusable_new_ca_file_is_not_used(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "ca.crt"
    path.write_bytes((Path(__file__).parents[2] / "data" / "ca.crt").read_bytes())
    ca_file = CAFile(path, tls_context(path, origin="test"))
    path.unlink()
    if content is not None:
        path.write_bytes(content)

    assert not ca_file.reload(since=ca_file.version)


async def test_unchanged_ca_file_is_no_reason_to_dial_again(tmp_path: Path, pki: Path) -> None:
    path = tmp_path / "ca.crt"
    path.write_bytes((Path(__file__).parents[2] / "data" / "ca.crt").read_bytes())
    ca_file = CAFile(path, tls_context(path, origin="test"))
    assert not ca_file.reload(since=ca_file.version)

    before = ca_file.version
    path.write_bytes("# Zürich\n".encode() + (pki / "ca.crt").read_bytes())
    assert ca_file.reload(since=before)
    assert ca_file.version == before + 1
    assert ca_file.reload(since=before), "another request may have reloaded it"
    assert not ca_file.reload(since=ca_file.version)
