"""Rows of the table in test/README.md that only the whole product can show."""

from pathlib import Path

from support import programs
from support.playground import PlaygroundNamespace, stopped
from support.proxy import faulty_proxy
from support.target import condition, status_of
from support.wire import Json

KIND = "example.com/asked"
TRUE = {"exec": {"command": ["true"]}}
ENDLESS = {"image": "none", "command": ["sleep", "1000"]}


def probe(handler: Json, container: str = "main", *, name: str = "asked", kind: str = KIND) -> Json:
    return {
        "name": name,
        "containerName": container,
        "probe": handler,
        "podConditionType": kind,
    }


async def until_true(ns: PlaygroundNamespace) -> None:
    await ns.until(
        "its condition is True",
        lambda pod: status_of(pod, KIND) == "True",
    )


async def test_a29_a_daemon_watches_one_object_and_asks_for_no_pod(
    ns: PlaygroundNamespace, tmp_path: Path
) -> None:
    playground = ns.playground
    await ns.pod()
    with stopped(playground.daemons["node-0"]):
        async with faulty_proxy(playground.config) as proxy:
            kubeconfig = proxy.write_kubeconfig(tmp_path)
            flags = ("--node-name=node-0", f"--cri-endpoint={playground.nodes[0].cri_endpoint}")
            async with programs.running("daemon", kubeconfig, tmp_path, *flags):
                await ns.marker(probe(TRUE))
                await until_true(ns)
            watches = [request for request in proxy.log if request.watch]
            assert [watch.field_selector for watch in watches] == ["metadata.name=node-0"]
            # Over plain HTTP, /version shows that a server accepts a new connection.
            resources = {request.resource for request in proxy.log if request.path != "/version"}
            assert resources <= {"nodepodprobes", "nodepodprobes/status", "leases", "events"}
            for request in proxy.log:
                assert not (request.writes and request.path.endswith("/nodepodprobes"))


async def test_a25_a_probe_waits_for_the_startup_probe_of_its_container(
    ns: PlaygroundNamespace,
) -> None:
    startup_probe = {
        "exec": {"command": ["test", "-e", "started"]},
        "periodSeconds": 1,
        "failureThreshold": 100,
    }
    main = {**ENDLESS, "name": "main", "startupProbe": startup_probe}
    await ns.pod(containers=[main, {**ENDLESS, "name": "other"}])
    free_kind = "example.com/free"
    await ns.marker(
        probe(TRUE),
        probe(TRUE, "other", name="free", kind=free_kind),
    )
    pod = await ns.until(
        "has the free one's result",
        lambda pod: condition(pod, free_kind),
    )
    assert not condition(pod, KIND)
    report = ns.api.node_pod_probes.current("node-0")
    entries = {entry["uid"]: entry for entry in report["spec"]["podProbes"]}
    (listed,) = entries[pod["metadata"]["uid"]]["probes"]
    assert listed["name"] == "marker#free", "the gated one is not in NodePodProbe.spec yet"
    (ns.folder() / "started").touch()
    await until_true(ns)


async def test_a42_a_sidecars_named_port_is_probed_across_its_restarts(
    ns: PlaygroundNamespace,
) -> None:
    serve = (
        "import socket,os;s=socket.create_server((os.environ['POD_IP'],7001))\nwhile 1:s.accept()"
    )
    sidecar = {
        "name": "side",
        "image": "none",
        "command": ["python3", "-c", serve],
        "restartPolicy": "Always",
        "ports": [{"name": "door", "containerPort": 7001}],
    }

    async def until_restarted(restarts: int) -> None:
        def is_restarted(pod: Json) -> bool:
            (status,) = pod["status"]["initContainerStatuses"]
            return status["restartCount"] == restarts and bool(status.get("started"))

        await ns.until(f"restart {restarts}", is_restarted)

    await ns.pod(initContainers=[sidecar], restartPolicy="Never")
    await ns.marker(probe({"tcpSocket": {"port": "door"}}, "side"))
    await until_true(ns)
    for restarts in (1, 2):
        container = ns.playground.container(ns.namespace, "web", "side")
        assert container.process is not None
        container.process.kill_group()
        await until_restarted(restarts)
        await until_true(ns)
