"""E11: who reaches the webhook's port learns nothing of a namespace's probes, and annotations hold no credentials."""

import base64
import json
import ssl
import subprocess
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest
from hostile.attacked import AttackedProgram, attacked_webhook
from support.embedded_cluster import EmbeddedCluster
from support.hollow import probe
from support.wire import Json

from kruise_probe.api.names import MUTATE_PODS, VALIDATE_MARKERS

GATE = "--feature-gates=EnablePodProbeMarkerOnServerless=true"
SECRET = {"name": "Authorization", "value": "Bearer top-secret"}


class ClientCertificate(NamedTuple):
    """PEM files; `pair` is the certificate and its key."""

    authority: Path
    pair: Path


def client_certificate(folder: Path, name: str) -> ClientCertificate:
    """A certificate for client authentication, which is its own authority."""
    files = ClientCertificate(folder / f"{name}-ca.crt", folder / f"{name}-client.pem")
    key = [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-keyout",
        str(files.pair),
    ]
    usage = ["-subj", "/CN=kube-apiserver", "-addext", "extendedKeyUsage=clientAuth"]
    command = ["openssl", "req", "-x509", *key, *usage, "-out", str(files.authority)]
    subprocess.run(command, capture_output=True, check=True)
    files.pair.write_bytes(files.authority.read_bytes() + files.pair.read_bytes())
    return files


async def create_marker(cluster: EmbeddedCluster) -> None:
    handler = {"httpGet": {"port": 80, "httpHeaders": [SECRET]}}
    await cluster.hollow.add_marker(probe(probe=handler), app="game")


async def mutate(
    attacked: AttackedProgram, certificate: Path | None = None, *, path: str = MUTATE_PODS
) -> Json | None:
    """The annotations of a new pod; None where the webhook answers nothing."""
    pod = {
        "metadata": {"name": "p", "labels": {"app": "game"}},
        "spec": {"containers": [{"name": "main"}]},
    }
    request = {"uid": "u", "operation": "CREATE", "namespace": "default", "object": pod}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate:
        context.load_cert_chain(certificate)
    url = f"https://127.0.0.1:{attacked.port}{path}"
    body = BytesIO(json.dumps({"request": request}).encode())
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
            session.post(url, data=body, ssl=context) as response,
        ):
            assert response.status == 200
            answer = (await response.json())["response"]
    except (aiohttp.ClientError, OSError):
        return None
    patch = json.loads(base64.b64decode(answer.get("patch", "W10=")))
    return {} if not patch else dict(patch[0]["value"])


async def _is_annotated(attacked: AttackedProgram, certificate: Path | None = None) -> bool:
    return bool(await mutate(attacked, certificate))


@pytest.mark.parametrize("path", [MUTATE_PODS, VALIDATE_MARKERS])
async def test_e11_with_a_client_ca_only_the_api_server_is_answered(
    cluster: EmbeddedCluster, tmp_path: Path, path: str
) -> None:
    await create_marker(cluster)
    own = client_certificate(tmp_path, "own")
    other = client_certificate(tmp_path, "other")
    flag = f"--webhook-client-ca-file={own.authority}"
    async with attacked_webhook(cluster, GATE, flag) as manager:
        await manager.program.until("annotates", lambda: _is_annotated(manager, own.pair))

        assert await mutate(manager, path=path) is None
        assert await mutate(manager, other.pair, path=path) is None
        answered = await mutate(manager, own.pair, path=path)
        assert answered is not None
        assert "top-secret" not in json.dumps(answered)
