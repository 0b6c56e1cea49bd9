"""What flags of both programs change, seen from outside: at the API server, at the runtime, at their own endpoints."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from integration.fault_steps import all_pods, exec_probes, is_marked
from support.background import background
from support.cases import cases
from support.embedded_cluster import EmbeddedCluster
from support.fake_runtime import ExecCall, ScriptedRuntime, hang
from support.hollow import CONDITION, node_name, probe
from support.patience import PATIENCE_SECONDS
from support.programs import Program
from support.target import condition, results_of
from support.wire import Json

from kruise_probe.api.meta import NamespacedName
from kruise_probe.daemon.cri.runtime import ExecResult

NODE = node_name(0)
ELSEWHERE = {"metadata": {"name": "elsewhere"}}


@asynccontextmanager
async def daemon(
    cluster: EmbeddedCluster, runtime: ScriptedRuntime, *flags: str, commands: int = 1
) -> AsyncIterator[Program]:
    """A daemon that runs `check NUMBER` in one container, each command once a second."""
    runtime.start("uid-1", "main")
    await cluster.hollow.add_node_pod_probe(
        NODE,
        exec_probes(commands, "check", timeoutSeconds=10),
    )
    async with cluster.daemon(NODE, runtime, *flags) as program:
        yield program


async def test_max_concurrent_execs(cluster: EmbeddedCluster) -> None:
    runtime = ScriptedRuntime()
    for number in range(6):
        runtime.on_exec("check", str(number), script=hang())

    async def queued() -> bool:
        return runtime.in_flight == 2

    async def waited() -> bool:
        return await program.metric("kruise_probe_ticks_missed_total") >= 2 * 6

    async with daemon(cluster, runtime, "--max-concurrent-execs=4", commands=6) as program:
        await program.until("two run: one pod has half of the places", queued)
        await program.until("the others wait: each has missed ticks", waited)
        assert runtime.most_in_flight == 2
        assert await program.metric("kruise_probe_exec_in_flight") == 2


async def test_message_sync_interval(cluster: EmbeddedCluster) -> None:
    runtime = ScriptedRuntime()
    numbers = itertools.count()

    async def talkative(_: ExecCall) -> ExecResult:
        return ExecResult(0, str(next(numbers)).encode(), b"")

    runtime.on_exec("check", "0", script=talkative)
    seen: set[int] = set()

    def three_in_a_row(report: Json) -> bool:
        for _, message in results_of(report).values():
            if message:
                seen.add(int(message))
        return any({number + 1, number + 2} <= seen for number in seen)

    async with daemon(cluster, runtime, "--message-sync-interval=0"):
        reports = cluster.api.node_pod_probes
        await reports.until("each message is published", three_in_a_row, name=NODE)


async def test_refresh_interval_system_namespace_and_readiness_of_the_daemon(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.api.create("/api/v1/namespaces", ELSEWHERE)
    flags = ("--result-refresh-interval=1s", "--system-namespace=elsewhere")
    async with daemon(cluster, ScriptedRuntime(), *flags) as program:
        await program.ready()
        reports = cluster.api.node_pod_probes

        def is_published_again() -> bool:
            history = reports.history[NamespacedName("", NODE)]
            published = {str(report["status"]) for report in history if results_of(report)}
            return len(published) >= 3

        await reports.wait("the same is published again", is_published_again)
        _, text = await program.get("readyz?verbose")
        assert_lease(cluster, f"kruise-probe-{NODE}", 60)
    caches = {"cache nodepodprobes", "watch nodepodprobes"}
    assert named(text) == {"loop", "kubeconfig", "runtime"} | caches


def assert_lease(cluster: EmbeddedCluster, name: str, seconds: int) -> None:
    """The only Lease is in the namespace `elsewhere`."""
    (lease,) = cluster.server.objects("leases.coordination.k8s.io")
    assert lease["metadata"]["namespace"] == "elsewhere"
    assert lease["metadata"]["name"] == name
    assert lease["spec"]["leaseDurationSeconds"] == seconds


async def test_rest_config_qps_and_burst(cluster: EmbeddedCluster) -> None:
    await cluster.hollow.add_nodes(1)
    await cluster.hollow.add_pods(20, nodes=1)
    qps, burst = 4, 2
    flags = (f"--rest-config-qps={qps}", f"--rest-config-burst={burst}")
    async with cluster.manager(*flags) as manager, background(cluster.daemons.follow()):
        await manager.ready()
        await cluster.hollow.add_marker(probe())
        await all_pods(cluster, "all are marked", is_marked)
    sent = [seen.at for seen in cluster.proxy.log if seen.resource == "pods/status"]
    assert len(sent) == 20
    ideal_seconds = (len(sent) - burst) / qps
    # Half of it: these are the times at the proxy, and a busy machine delays the first request more.
    assert sent[-1] - sent[0] >= ideal_seconds / 2


async def test_workers_sync_period_and_readiness_of_the_manager(cluster: EmbeddedCluster) -> None:
    await cluster.hollow.add_nodes(1)
    await cluster.hollow.add_pods(1, nodes=1)
    flags = ("--podprobemarker-workers=3", "--nodepodprobe-workers=5", "--sync-period=1s")
    async with cluster.manager(*flags) as manager:
        await manager.ready()
        _, text = await manager.get("readyz?verbose")
        kinds = ("podprobemarkers", "pods", "nodes", "nodepodprobes", "leases")
        caches = {f"cache {kind}" for kind in kinds}
        watches = {f"watch {kind}" for kind in kinds}
        assert named(text) == {"loop", "kubeconfig"} | caches | watches
        await cluster.hollow.add_marker(probe())
        _, metrics = await manager.get("metrics")
        workers = "controller_runtime_max_concurrent_reconciles"
        assert f'{workers}{{controller="podprobemarker"}} 3.0' in metrics
        assert f'{workers}{{controller="nodepodprobe"}} 5.0' in metrics

        async def has_reconciled_again() -> bool:
            return await manager.metric("controller_runtime_reconcile_total") >= 40

        await manager.until("it reconciles everything again and again", has_reconciled_again)
        assert cluster.server.faults.count(code=409) == 0


@cases("interval most", no_limit=("0", 21), an_hour=("1h", 4))
async def test_how_often_messages_alone_are_written(
    cluster: EmbeddedCluster, interval: str, most: int
) -> None:
    """The first write is the first result; with a limit there are three more."""
    said = ["first"]
    cluster.daemons.result_of = lambda _pod, _probe: ("Succeeded", said[-1])

    async def pod_says(message: str) -> None:
        await cluster.api.pods.until(
            f"says {message}",
            lambda pod: condition(pod, CONDITION).get("message") == message,
            name="pod-0",
            namespace="default",
        )

    await cluster.hollow.add_nodes(1)
    await cluster.hollow.add_pods(1, nodes=1)
    await cluster.hollow.add_marker(probe())
    async with cluster.manager(f"--message-update-interval={interval}"):
        async with background(cluster.daemons.follow()):
            await pod_says("first")
        for number in range(1, 21):
            said.append(str(number))
            await cluster.daemons.write_changes()
            if number < most:
                await pod_says(said[-1])
    written = [seen for seen in cluster.proxy.log if seen.resource == "pods/status"]
    assert len(written) == most


async def test_where_leaders_are_elected_and_for_how_long(cluster: EmbeddedCluster) -> None:
    await cluster.api.create("/api/v1/namespaces", ELSEWHERE)
    flags = (
        "--enable-leader-election",
        "--leader-election-namespace=elsewhere",
        "--leader-election-id=chosen",
        "--leader-election-lease-duration=21s",
    )
    async with cluster.manager(*flags) as manager:

        async def leads() -> bool:
            return manager.has_logged("became leader")

        await manager.until("it leads", leads)
        assert_lease(cluster, "chosen", 21)
    (lease,) = cluster.server.objects("leases.coordination.k8s.io")
    assert not lease["spec"].get("holderIdentity"), "it was given back"


async def test_caches_that_do_not_sync_in_time_end_the_manager(cluster: EmbeddedCluster) -> None:
    cluster.proxy.black_hole()
    async with cluster.manager("--controller-cache-sync-timeout=1s") as manager:
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await manager.process.wait() == 1
        assert manager.has_logged("podprobemarkers")


def named(verbose: str) -> set[str]:
    """The checks of a listing, all of which are well."""
    lines = [line for line in verbose.splitlines() if line.startswith("[")]
    assert all(line.startswith("[+]") for line in lines), verbose
    return {line.removeprefix("[+]").removesuffix(" ok") for line in lines}
