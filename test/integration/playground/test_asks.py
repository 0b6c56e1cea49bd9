"""Rows of the table in test/README.md that only the whole product can show."""

from pathlib import Path
from typing import Any

from support import programs
from support.playground import PlaygroundNamespace, stopped
from support.proxy import faulty_proxy
from support.target import condition

Json = dict[str, Any]

KIND = "example.com/asked"


def probe(how: Json, *, container: str = "main", name: str = "asked") -> Json:
    return {"name": name, "containerName": container, "probe": how, "podConditionType": KIND}


def is_status(status: str) -> Any:
    return lambda pod: condition(pod, KIND).get("status") == status


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
                await ns.marker(probe({"exec": {"command": ["true"]}}))
                await ns.until("has a result", is_status("True"))
            watches = [each for each in proxy.log if each.watch]
            assert [each.field_selector for each in watches] == ["metadata.name=node-0"]
            # Over plain HTTP, /version shows that somebody serves a new connection.
            asked = [request for request in proxy.log if request.path != "/version"]
            assert {request.resource for request in asked} <= {
                *("nodepodprobes", "nodepodprobes/status", "leases", "events"),
            }
            assert not any(
                each.path.endswith("/nodepodprobes") and each.writes for each in proxy.log
            )


async def test_a25_a_probe_waits_for_the_startup_probe_of_its_container(
    ns: PlaygroundNamespace,
) -> None:
    started = {"exec": {"command": ["test", "-e", "started"]}, "periodSeconds": 1}
    main = {
        **{"name": "main", "image": "none", "command": ["sleep", "1000"]},
        "startupProbe": {**started, "failureThreshold": 100},
    }
    other = {"name": "other", "image": "none", "command": ["sleep", "1000"]}
    await ns.pod(containers=[main, other])
    gated = probe({"exec": {"command": ["true"]}})
    free = {**probe({"exec": {"command": ["true"]}}, container="other", name="free")}
    free["podConditionType"] = "example.com/free"
    await ns.marker(gated, free)
    pod = await ns.until(
        "has the free one's result", lambda each: condition(each, "example.com/free")
    )
    assert not condition(pod, KIND)
    report = ns.api.node_pod_probes.current("node-0")
    asked = [
        each["name"]
        for entry in report["spec"]["podProbes"]
        if entry["uid"] == pod["metadata"]["uid"]
        for each in entry["probes"]
    ]
    assert asked == ["marker#free"], "the node is not asked for it yet"
    (ns.folder() / "started").touch()
    await ns.until("has the gated one's result", is_status("True"))


async def test_a42_a_sidecars_named_port_is_probed_across_its_restarts(
    ns: PlaygroundNamespace,
) -> None:
    serve = (
        "import socket,os;s=socket.create_server((os.environ['POD_IP'],7001))\nwhile 1:s.accept()"
    )
    sidecar = {
        **{"name": "side", "image": "none", "command": ["python3", "-c", serve]},
        "restartPolicy": "Always",
        "ports": [{"name": "door", "containerPort": 7001}],
    }
    await ns.pod(initContainers=[sidecar], restartPolicy="Never")
    await ns.marker(probe({"tcpSocket": {"port": "door"}}, container="side"))
    await ns.until("succeeds", is_status("True"))
    for restarts in range(1, 3):
        container = ns.playground.container(ns.namespace, "web", "side")
        assert container.process is not None
        container.process.kill_group()
        await ns.until(
            f"restart {restarts}",
            lambda pod, restarts=restarts: (
                pod["status"]["initContainerStatuses"][0]["restartCount"] == restarts
                and pod["status"]["initContainerStatuses"][0].get("started")
            ),
        )
        await ns.until("succeeds again", is_status("True"))
