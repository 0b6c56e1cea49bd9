"""E11: who reaches the webhook's port learns nothing of a namespace's probes, and annotations hold no credentials."""

import base64
import json
import subprocess
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
    authority = folder / f"{name}-ca.crt"
    pair = folder / f"{name}-client.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
        f" -keyout {pair} -out {authority}"
        " -subj /CN=kube-apiserver -addext extendedKeyUsage=clientAuth"
    )
    subprocess.run(command.split(), capture_output=True, check=True)
    pair.write_bytes(authority.read_bytes() + pair.read_bytes())
    return ClientCertificate(authority, pair)


async def mutate(
    attacked: AttackedProgram, certificate: Path | None = None, *, path: str = MUTATE_PODS
) -> Json | None:
    """The annotations of a new pod; None if the webhook sends no response."""
    pod = {
        "metadata": {"name": "p", "labels": {"app": "game"}},
        "spec": {"containers": [{"name": "main"}]},
    }
    request = {
        "uid": "u",
        "operation": "CREATE",
        "namespace": "default",
        "object": pod,
    }
    body = json.dumps({"request": request}).encode()
    try:
        status, text = await attacked.post(path, body, certificate)
    except (aiohttp.ClientError, OSError):
        return None
    assert status == 200
    encoded = json.loads(text)["response"].get("patch")
    if not encoded:
        return {}
    (operation,) = json.loads(base64.b64decode(encoded))
    return dict(operation["value"])


@pytest.mark.parametrize("path", [MUTATE_PODS, VALIDATE_MARKERS])
async def test_e11_with_a_client_ca_only_the_api_server_is_answered(
    cluster: EmbeddedCluster, tmp_path: Path, path: str
) -> None:
    handler = {"httpGet": {"port": 80, "httpHeaders": [SECRET]}}
    await cluster.hollow.add_marker(probe(probe=handler), app="game")
    own = client_certificate(tmp_path, "own")
    other = client_certificate(tmp_path, "other")
    flag = f"--webhook-client-ca-file={own.authority}"
    async with attacked_webhook(cluster, GATE, flag) as manager:

        async def annotates() -> bool:
            return bool(await mutate(manager, own.pair))

        await manager.program.until("annotates", annotates)

        assert await mutate(manager, path=path) is None
        assert await mutate(manager, other.pair, path=path) is None
        answered = await mutate(manager, own.pair, path=path)
        assert answered is not None
        assert "top-secret" not in json.dumps(answered)
