"""A real etcd, API server and controller manager of a test's own, and hollow objects on them."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import aiohttp
from support.hollow import Daemons, Hollow, HollowCluster
from support.patience import PATIENCE_SECONDS
from support.programs import SECRETS, InPod
from support.target import GROUP, Target
from support.wire import Json

from kruise_probe.api.errors import AlreadyExists, ConnectionFailed, KubeError, NotFound
from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.client.config import ClusterConfig, load_config
from kruise_probe.client.rest import RestClient
from kruise_probe.manifests.crds import all_crds

HACK_CLUSTER = Path(__file__).parents[2] / "hack" / "cluster"

ACCOUNT = "soak"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class ControlPlane:
    """Real etcd, API server and controller manager; the default port is that of hack/soak."""

    def __init__(self, folder: Path, *, port: str = "") -> None:
        self._environ = {
            **os.environ,
            "KRUISE_PROBE_CLUSTER_DIR": str(folder),
            "KRUISE_PROBE_CLUSTER_PORT": port or os.environ.get("KRUISE_PROBE_SOAK_PORT", "27443"),
        }
        self.folder = folder

    @contextmanager
    def running(self) -> Iterator[None]:
        """Starts it for the length of the block, and stops it also after a failed start."""
        try:
            self._command("up", "--no-node")
            yield
        finally:
            self._command("down")

    def _command(self, *arguments: str) -> None:
        done = subprocess.run(
            [HACK_CLUSTER, *arguments],
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        # The output names the component that failed.
        assert not done.returncode, f"hack/cluster {arguments}: {done.returncode}\n{done.stdout}"

    async def do(self, *arguments: str) -> None:
        """Runs `hack/cluster …` without blocking the loop."""
        await asyncio.to_thread(self._command, *arguments)

    def pid(self, component: str) -> int:
        return int((self.folder / "pids" / component).read_text().split()[0])

    async def kill(self, component: str) -> None:
        """Sends SIGKILL; returns when the process has ended."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        process = os.pidfd_open(self.pid(component))
        loop.add_reader(process, ended.set)
        try:
            signal.pidfd_send_signal(process, signal.SIGKILL)
            await ended.wait()
        finally:
            loop.remove_reader(process)
            os.close(process)

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfigs" / "admin"

    def config(self) -> ClusterConfig:
        return load_config(str(self.kubeconfig))

    async def compact(self) -> None:
        """Compacts etcd to the newest version, as the API server does every five minutes."""
        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with session.post(f"{self.etcd}/v3/kv/range", json={"key": "AA=="}) as answer:
                    revision = (await answer.json())["header"]["revision"]
                wanted = {"revision": revision, "physical": True}
                async with session.post(f"{self.etcd}/v3/kv/compaction", json=wanted) as answer:
                    await answer.read()

    @property
    def etcd(self) -> str:
        return f"http://127.0.0.1:{int(self._environ['KRUISE_PROBE_CLUSTER_PORT']) + 1}"


def write_account(folder: Path, token: str, authority: Path) -> None:
    """The files of a service account, as below /var/run/secrets."""
    files = folder / "kubernetes.io" / "serviceaccount"
    files.mkdir(parents=True, exist_ok=True)
    (files / "token").write_text(token)
    (files / "namespace").write_text(SYSTEM_NAMESPACE)
    (files / "ca.crt").write_bytes(authority.read_bytes())
    Path(SECRETS).mkdir(exist_ok=True)


async def in_pod(plane: ControlPlane, api: Target, folder: Path) -> InPod:
    """The files of a service account with the role cluster-admin. Needs root."""
    accounts = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/serviceaccounts"
    await _if_new(api, accounts, {"metadata": {"name": ACCOUNT}})
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SYSTEM_NAMESPACE}
    binding = {
        "metadata": {"name": ACCOUNT},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [subject],
    }
    await _if_new(api, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    wanted = {"spec": {"expirationSeconds": 14_400}}
    token = await api.create(f"{accounts}/{ACCOUNT}/token", wanted)
    authority = plane.folder / "pki" / "ca.crt"
    write_account(folder / "account", token["status"]["token"], authority)
    return InPod(folder / "account", plane.config().server)


@asynccontextmanager
async def prepared(
    plane: ControlPlane, namespace: str, *, crds: Sequence[Json] | None = None
) -> AsyncIterator[Target]:
    """As `set_up`; removes nodes, pods and our objects at the end."""
    async with set_up(plane, namespace, crds=crds) as api:
        try:
            yield api
        finally:
            await _clean(api, namespace)


@asynccontextmanager
async def set_up(
    plane: ControlPlane, namespace: str, *, crds: Sequence[Json] | None = None
) -> AsyncIterator[Target]:
    """The CRDs (ours by default) and an empty namespace."""
    async with RestClient(config=plane.config(), field_manager="soak", user_agent="soak") as client:
        api = Target(client)
        if crds is None:
            crds = all_crds()
        for crd in crds:
            await _if_new(api, CRDS, crd)
            spec = crd["spec"]
            version = spec["versions"][0]["name"]
            await until_served(api, f"/apis/{spec['group']}/{version}/{spec['names']['plural']}")
        for name in (SYSTEM_NAMESPACE, namespace):
            await _if_new(api, "/api/v1/namespaces", {"metadata": {"name": name}})
        await until_served(api, f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
        yield api


@asynccontextmanager
async def staged(plane: ControlPlane, namespace: str) -> AsyncIterator[HollowCluster]:
    """A namespace on the real API server, with watches."""
    async with prepared(plane, namespace) as api, api.watched():
        yield HollowCluster(
            plane.config(),
            api,
            Hollow(api, namespace),
            Daemons(api),
        )


async def _if_new(api: Target, path: str, body: Json) -> None:
    with suppress(AlreadyExists):
        await api.create(path, body)


async def until_served(api: Target, path: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with suppress(KubeError):
                await api.get(path)
                return
            await asyncio.sleep(0.2)


async def _clean(api: Target, namespace: str) -> None:
    markers = f"{GROUP}/namespaces/{namespace}/podprobemarkers"
    for marker in (await api.get(markers))["items"]:
        path = f"{markers}/{marker['metadata']['name']}"
        await api.merge(path, {"metadata": {"finalizers": None}})
        with suppress(NotFound):  # it was being deleted
            await api.delete(path)
    await _clear(api, f"/api/v1/namespaces/{namespace}/pods")
    await _clear(api, "/api/v1/nodes")
    await _clear(api, f"{GROUP}/nodepodprobes")


async def _clear(api: Target, path: str) -> None:
    """Deletes a collection. Thousands of objects take longer than the deadline of a request, so it tries again."""
    for _ in range(20):
        with suppress(ConnectionFailed):
            await api.delete(path, grace_seconds=0)
            return
