"""Load balancers, names, files and links between the processes and the API server that behave badly."""

import asyncio
import ssl
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

from integration.fault_steps import all_pods, exec_probes
from support import programs
from support.background import background
from support.balancer import Balancer
from support.cases import cases
from support.certificates import issued
from support.embedded_cluster import EmbeddedCluster
from support.fake_runtime import ExecCall, ScriptedRuntime
from support.hollow import CONDITION, node_name, pod_name, probe
from support.kubeconfig import kubeconfig
from support.managers import lease_flags
from support.patience import PATIENCE_SECONDS
from support.programs import ByName, Program
from support.proxy import FaultyProxy, faulty_proxy
from support.target import results_of, status_of

from kruise_probe.api.meta import NamespacedName
from kruise_probe.controllers.daemon_leases import STALE_SECONDS
from kruise_probe.daemon.cri.runtime import ExecResult
from kruise_probe.serving.certificates import IssuedCertificate
from kruise_probe.serving.server_tls import ServerTls

LEASE_FLAGS = lease_flags(8.0)
"""A manager leads for six seconds without a renewal."""
NODE = node_name(0)
POD = NamespacedName("default", pod_name(0))
SERVER_NAME = "api.test"
ADDRESSES = ("127.0.0.2", "127.0.0.3")
"""Of the server, in the order in which a process tries them."""


def renewals(proxy: FaultyProxy, lease: str, code: int) -> list[float]:
    """When a Lease was renewed, with this response."""
    return [
        seen.at
        for seen in proxy.log
        if seen.writes and seen.path.endswith(f"/{lease}") and seen.code == code
    ]


async def add_running_pod(cluster: EmbeddedCluster) -> ScriptedRuntime:
    """Adds a node with one pod, and a marker. Returns the runtime of the node, which runs its container."""
    await cluster.hollow.add_nodes(1)
    await cluster.hollow.add_pods(1, nodes=1)
    await cluster.hollow.add_marker(probe())
    runtime = ScriptedRuntime()
    runtime.start(
        cluster.api.pods.current(POD.name, POD.namespace)["metadata"]["uid"],
        "main",
    )
    return runtime


async def until_marked(cluster: EmbeddedCluster, seconds: float = PATIENCE_SECONDS) -> None:
    await cluster.api.pods.until(
        "its condition is True",
        lambda pod: status_of(pod, CONDITION) == "True",
        name=POD.name,
        namespace=POD.namespace,
        seconds=seconds,
    )


async def test_a_backend_that_answers_500_is_left_at_once(cluster: EmbeddedCluster) -> None:
    """Behind a layer-4 balancer one API server loses its etcd. New connections lead to a good one."""
    bad = cluster.proxy
    names = ("kruise-probe-manager", f"kruise-probe-{NODE}")
    folder = cluster.folder

    async def until_both_renew(proxy: FaultyProxy) -> None:
        def both_renew() -> bool:
            return all(renewals(proxy, name, 200) for name in names)

        await proxy.until("both renew", both_renew)

    runtime = await add_running_pod(cluster)
    async with (
        faulty_proxy(cluster.upstream) as good,
        Balancer(bad.url).running() as balancer,
    ):
        access = balancer.write_kubeconfig(folder)
        async with (
            programs.running("manager", access, folder, *LEASE_FLAGS) as manager,
            programs.running_daemon(access, folder, NODE, runtime) as daemon,
        ):
            await until_marked(cluster)
            await until_both_renew(bad)
            balancer.upstream = good.url
            bad.fail(500)
            await until_both_renew(good)
            for name in names:
                (refused_at,) = renewals(bad, name, 500)
                renewed_at, *_ = renewals(good, name, 200)
                assert renewed_at - refused_at < 3
            await asyncio.sleep(STALE_SECONDS)
            assert manager.running
            assert daemon.running
    history = cluster.api.pods.history[POD]
    assert {status_of(pod, CONDITION) for pod in history} == {None, "True"}


@cases(
    "max_open resets seconds",
    ten_and_others_wait=(10, False, 10.0),
    seven_and_others_wait=(7, False, 30.0),
    seven_and_others_are_reset=(7, True, 30.0),
)
async def test_100_pods_change_over_few_connections(
    cluster: EmbeddedCluster, max_open: int, resets: bool, seconds: float
) -> None:
    state = "Succeeded"
    cluster.daemons.result_of = lambda pod, name: (state, "")
    await cluster.hollow.add_nodes(2)
    await cluster.hollow.add_pods(100, nodes=2)
    pair = issued(SERVER_NAME)

    async def until_all_are(status: str, seconds: float = PATIENCE_SECONDS) -> None:
        await cluster.daemons.write_all()
        await all_pods(
            cluster,
            f"all are {status}",
            lambda pod: status_of(pod, CONDITION) == status,
            seconds=seconds,
        )

    async with (
        Balancer(cluster.server.url).running(tls=context_of(pair)) as server,
        Balancer(server.url, max_open=max_open, resets=resets).running() as balancer,
    ):
        access = write_kubeconfig(cluster.folder, f"127.0.0.1:{balancer.port}", pair)
        async with (
            programs.running(
                "manager",
                access,
                cluster.folder,
                *LEASE_FLAGS,
            ) as manager,
            background(cluster.daemons.follow()),
        ):
            await manager.ready()
            await cluster.hollow.add_marker(probe())
            await until_all_are("True")
            state = "Failed"
            await until_all_are("False", seconds)
            state = "Succeeded"
            await until_all_are("True")

            async def has_reported() -> bool:
                begun = manager.times_logged("requests wait for one that is free")
                ended = manager.times_logged("connections to the API server can be opened again")
                return begun == ended + 1

            if max_open == 7:
                await manager.until("reports once that requests wait", has_reported)


def context_of(pair: IssuedCertificate) -> ssl.SSLContext:
    tls = ServerTls()
    tls.load(pair.certificate + pair.key)
    return tls.context


def write_kubeconfig(folder: Path, address: str, pair: IssuedCertificate) -> Path:
    authority = folder / "ca.crt"
    authority.write_bytes(pair.certificate)
    cluster = {
        "server": f"https://{address}",
        "certificate-authority": str(authority),
        "tls-server-name": SERVER_NAME,
    }
    path = folder / "tls.kubeconfig"
    kubeconfig(path, cluster=cluster, user={}, context={})
    return path


async def test_one_of_two_addresses_accepts_connections_and_is_silent(
    cluster: EmbeddedCluster,
) -> None:
    pair = issued(SERVER_NAME)
    hosts = cluster.folder / "hosts"
    lines = [f"{address} {SERVER_NAME}\n" for address in ADDRESSES]
    hosts.write_text("".join(lines))
    runtime = await add_running_pod(cluster)
    silent = Balancer("", max_open=0)
    served = Balancer(cluster.proxy.url)

    async def is_tried() -> bool:
        return silent.accepted > 1

    async with (
        silent.running(ADDRESSES[0]),
        served.running(ADDRESSES[1], silent.port, context_of(pair)),
    ):
        address = f"{SERVER_NAME}:{silent.port}"
        access = ByName(write_kubeconfig(cluster.folder, address, pair), hosts)
        async with (
            programs.running("manager", access, cluster.folder),
            programs.running_daemon(access, cluster.folder, NODE, runtime),
        ):
            await programs.until("both processes try the silent address", is_tried)
            await until_marked(cluster, seconds=12)


@cases("content", zeroed=b"\0\0\0\0", two_lines=b"old\nnew\n", gone=None)
async def test_a_token_file_that_is_broken_for_a_while(
    cluster: EmbeddedCluster, content: bytes | None
) -> None:
    proxy = cluster.proxy
    token = cluster.folder / "token"
    token.write_text("old")
    path = cluster.folder / "token.kubeconfig"
    kubeconfig(
        path,
        cluster={"server": proxy.url},
        user={"tokenFile": "token"},
        context={},
    )

    def accepted(word: str) -> list[float]:
        return [
            seen.at
            for seen in proxy.log
            if seen.authorization == f"Bearer {word}" and seen.code == 200
        ]

    await cluster.hollow.add_node_pod_probe(NODE)
    async with programs.running_daemon(
        path,
        cluster.folder,
        NODE,
        ScriptedRuntime(),
    ) as daemon:
        await daemon.ready()
        proxy.fail(
            401,
            when=lambda seen: seen.authorization != "Bearer new",
        )
        token.unlink()
        if content is not None:
            token.write_bytes(content)
        proxy.reset()
        await proxy.until(
            "a request is refused",
            lambda: proxy.log[-1].code == 401,
        )
        await asyncio.sleep(5)
        assert daemon.times_logged("requests wait for a valid token file") == 1
        replaced_at = asyncio.get_running_loop().time()
        token.write_text("new")
        await proxy.until(
            "the new token is used",
            lambda: bool(accepted("new")),
        )
        assert accepted("new")[0] - replaced_at < 2
    assert {seen.authorization for seen in proxy.log} == {"Bearer old", "Bearer new"}


async def test_two_daemons_with_one_node_name_name_each_other(cluster: EmbeddedCluster) -> None:
    """The two of a rolling update, which run together for a while, are not reported."""
    access = cluster.proxy.write_kubeconfig(cluster.folder)
    lease = f"kruise-probe-{NODE}"
    runtime = await add_running_pod(cluster)

    def running(name: str) -> AbstractAsyncContextManager[Program]:
        folder = cluster.folder / name
        folder.mkdir()
        return programs.running_daemon(access, folder, NODE, runtime)

    def reports_two(daemon: Program) -> bool:
        return daemon.has_logged("another daemon renews the lease")

    def marker_reasons() -> set[str]:
        (marker,) = cluster.api.markers.all()
        conditions = marker.get("status", {}).get("conditions", [])
        return {condition["reason"] for condition in conditions}

    async def all_report() -> bool:
        return reports_two(new) and reports_two(other) and "TwoDaemons" in marker_reasons()

    async def until_patched(times: int) -> None:
        def patches() -> int:
            return len(renewals(cluster.proxy, lease, 200))

        target = patches() + times
        await cluster.proxy.until(
            f"{times} patches of the Lease",
            lambda: patches() >= target,
        )

    async with cluster.manager(), AsyncExitStack() as stack:
        async with running("old") as old:
            await until_marked(cluster)
            new = await stack.enter_async_context(running("new"))
            # The new one reads and renews; the old one reads what has changed, and renews.
            await until_patched(4)
        await until_patched(3)
        assert not reports_two(old)
        assert not reports_two(new)
        assert "TwoDaemons" not in marker_reasons()
        other = await stack.enter_async_context(running("other"))
        await programs.until("both logs and the marker name two daemons", all_report, seconds=100)


async def test_a_large_status_arrives_over_a_slow_link(cluster: EmbeddedCluster) -> None:
    """100 messages of 1,000 bytes change over 64 kbit/s. The Lease is renewed meanwhile."""
    word = b"a"

    async def printed(_: ExecCall) -> ExecResult:
        return ExecResult(0, word * 1000, b"")

    runtime = ScriptedRuntime(default_script=printed)
    runtime.start("uid-1", "main")
    await cluster.hollow.add_node_pod_probe(
        NODE,
        exec_probes(100, "p", periodSeconds=5),
    )
    reports = cluster.api.node_pod_probes

    def all_have(message: str) -> bool:
        results = results_of(reports.current(NODE)).values()
        return [text for _, text in results] == [message] * 100

    async with Balancer(cluster.proxy.url).running() as balancer:
        access = balancer.write_kubeconfig(cluster.folder)
        async with programs.running_daemon(
            access,
            cluster.folder,
            NODE,
            runtime,
        ) as daemon:
            await reports.wait(
                "all are stored",
                lambda: all_have("a" * 1000),
            )

            async def is_quiet() -> bool:
                now = asyncio.get_running_loop().time()
                return cluster.proxy.log[-1].at < now - 2

            await daemon.until("is quiet", is_quiet)
            balancer.bytes_per_second = 8_000
            word = b"b"
            await reports.wait(
                "all have changed",
                lambda: all_have("b" * 1000),
                seconds=40,
            )
            assert daemon.times_logged("events wait until the write is sent") == 1
            assert not daemon.has_logged("could not be")
