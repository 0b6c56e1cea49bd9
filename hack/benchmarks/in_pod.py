"""Runs a command as a pod would: service account token, CA and environment instead of a kubeconfig. Needs root."""

import base64
import shlex
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from benchmarks.api import Api

ACCOUNT = "kruise-probe-bench"
SECRETS = "/var/run/secrets"


async def as_in_a_pod(
    command: str, api: Api, folder: Path, kubeconfig: str
) -> tuple[str, dict[str, str]]:
    """The command line and environment; the files stand in a mount namespace of the command's own."""
    cluster = yaml.safe_load(Path(kubeconfig).read_text())["clusters"][0]["cluster"]  # noqa: ASYNC240 - before the measurement
    server = urlsplit(cluster["server"])
    await _make_account(api)
    token = await api.json(
        "POST",
        f"/api/v1/namespaces/kruise-system/serviceaccounts/{ACCOUNT}/token",
        {"spec": {"expirationSeconds": 7200}},
    )
    _write_files(folder, token["status"]["token"], _authority(cluster))
    words = shlex.split(command)
    if "--kubeconfig" in words:  # left out, so that the service account is what is found
        at = words.index("--kubeconfig")
        del words[at : at + 2]
    script = f"mount -t tmpfs tmpfs {SECRETS} && cp -r {folder}/account/. {SECRETS}/ && exec {shlex.join(words)}"
    return shlex.join(["unshare", "--mount", "sh", "-c", script]), {
        "KUBECONFIG": "",
        "KUBERNETES_SERVICE_HOST": server.hostname or "",
        "KUBERNETES_SERVICE_PORT": str(server.port or 443),
    }


def _write_files(folder: Path, token: str, authority: bytes) -> None:
    account = folder / "account" / "kubernetes.io" / "serviceaccount"
    account.mkdir(parents=True, exist_ok=True)
    (account / "token").write_text(token)
    (account / "namespace").write_text("kruise-system")
    (account / "ca.crt").write_bytes(authority)
    Path(SECRETS).mkdir(exist_ok=True)


async def _make_account(api: Api) -> None:
    await api.json(
        "POST",
        "/api/v1/namespaces/kruise-system/serviceaccounts",
        {"metadata": {"name": ACCOUNT}},
        fine=(409,),
    )
    await api.json(
        "POST",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "metadata": {"name": ACCOUNT},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "kruise-system"}],
        },
        fine=(409,),
    )


def _authority(cluster: dict[str, str]) -> bytes:
    if "certificate-authority" in cluster:
        return Path(cluster["certificate-authority"]).read_bytes()
    return base64.b64decode(cluster["certificate-authority-data"])
