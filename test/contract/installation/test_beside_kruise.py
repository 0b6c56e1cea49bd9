"""Beside the halves of OpenKruise and over its definitions, on a control plane of its own: its CRDs are replaced here.

Kruise's halves are played: what its manager writes into a NodePodProbe, and what its daemon writes into the status.
"""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from contract.contract_api import node_pod_probe
from contract.embedded_runtime import EmbeddedRuntime, embedded_runtime
from support.control_plane import ControlPlane, prepared
from support.hollow import CONDITION, LABEL, Daemons, Hollow, probe
from support.kruise_crds import kruise_crds
from support.kubectl import Kubectl
from support.pages import blocks
from support.patience import PATIENCE_SECONDS
from support.programs import ALONE, Program, running, until
from support.target import (
    Target,
    condition,
    labels,
    marker_path,
    node_pod_probe_path,
)
from support.wire import Json

from kruise_probe.api.errors import KubeError
from kruise_probe.api.names import MARKER_FINALIZER
from kruise_probe.controllers.marker_reconciler import CHECK_SECONDS

Holds = Callable[[Json], object]
NODE = "hollow-0"
pytestmark = pytest.mark.timeout(600)  # the first brings the control plane up
PORT = os.environ.get("KRUISE_PROBE_COEXISTENCE_PORT", "26443")


@pytest.fixture(scope="module")
def plane(admin: Kubectl) -> Iterator[ControlPlane]:
    """`admin` says whether there are binaries to run."""
    plane = ControlPlane(Path(os.environ.get("TMPDIR", "/tmp")) / "kp-beside-kruise", port=PORT)
    with plane.running():
        yield plane


class Cluster(NamedTuple):
    """A node and a namespace, on Kruise's definitions."""

    plane: ControlPlane
    kubectl: Kubectl
    api: Target
    hollow: Hollow
    daemons: Daemons
    folder: Path

    @property
    def namespace(self) -> str:
        return self.hollow.namespace

    @asynccontextmanager
    async def manager(self) -> AsyncIterator[Program]:
        async with running("manager", self.plane.kubeconfig, self.folder, ALONE) as program:
            yield program

    async def shown(self, pod: str, status: str) -> Json:
        return await self.api.pods.until(
            f"{CONDITION} is {status}",
            lambda pod: condition(pod, CONDITION).get("status") == status,
            name=pod,
            namespace=self.namespace,
        )

    async def marker(
        self, what: str = "is there", holds: Holds = bool, *, seconds: float = PATIENCE_SECONDS
    ) -> Json:
        """The marker, once it `holds`."""
        return await self.api.markers.until(
            what,
            lambda marker: bool(holds(marker)),
            name="marker",
            namespace=self.namespace,
            seconds=seconds,
        )

    async def report(self, what: str = "is there", holds: Holds = bool) -> Json:
        """The node's NodePodProbe, once it `holds`."""
        return await self.api.node_pod_probes.until(what, lambda npp: bool(holds(npp)), name=NODE)

    async def answered(self) -> None:
        """Until the daemon's news stand there; while definitions are replaced, a write may be refused."""

        async def nothing_is_left() -> bool:
            await self.daemons.write_changes()
            return not self.daemons.behind()

        await until("the daemon has answered", nothing_is_left)

    async def asked(self) -> None:
        """Until the node is asked to probe something, and its daemon has answered as Kruise's does."""
        await self.report("asks", lambda npp: npp["spec"].get("podProbes"))
        await self.answered()


@pytest.fixture
async def cluster(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Cluster]:
    kubectl = Kubectl(str(plane.kubeconfig))
    name = tmp_path.name.replace("_", "-").lower()[:40].strip("-")
    async with prepared(plane, name, crds=kruise_crds()) as api, api.watched():
        hollow = Hollow(api, name)
        await hollow.add_node(NODE)
        yield Cluster(plane, kubectl, api, hollow, Daemons(api), tmp_path)
    crds = "podprobemarkers.apps.kruise.io", "nodepodprobes.apps.kruise.io"
    kubectl.run("delete", "crd", *crds, "--timeout=120s", timeout=3 * PATIENCE_SECONDS)


def _clear_finalizers(cluster: Cluster) -> None:
    """As the uninstall guide says, for a manager that is gone."""
    (script,) = [each for each in blocks("sh") if "finalizers" in each.text]
    assert script.heading == "Uninstall"
    environ = {**os.environ, "KUBECONFIG": str(cluster.plane.kubeconfig)}
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script.text],
        env=environ,
        check=True,
        timeout=60,
        stdout=subprocess.DEVNULL,
    )


def crds_of_ours() -> str:
    command = [sys.executable, "-m", "kruise_probe", "manifests", "--crds-only"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def versions(cluster: Cluster) -> dict[str, str]:
    """Of everything that a manager writes to."""
    return {
        f"{each['kind']} {each['metadata']['name']}": each["metadata"]["resourceVersion"]
        for kind in ("podprobemarkers", "nodepodprobes", "pods")
        for each in cluster.kubectl.items(kind, "--all-namespaces")
    }


async def settled(manager: Program) -> None:
    """It has looked at a marker, a node and a pod, and nothing waits."""

    async def is_settled() -> bool:
        done = await manager.metric("controller_runtime_reconcile_total")
        return done >= 3 and await manager.metric("workqueue_depth") == 0

    await manager.until("has looked at everything", is_settled)


async def test_our_manager_beside_kruises_daemon_and_over_its_crds(cluster: Cluster) -> None:
    """No Lease, no field of ours anywhere: results reach pods, and a second manager finds nothing to write."""
    await cluster.hollow.add_pod(0, node=NODE)
    web = {"httpGet": {"port": 80}, "periodSeconds": 5}
    await cluster.hollow.add_marker(probe("web", probe=web))
    async with cluster.manager():
        await cluster.asked()
        pod = await cluster.shown("pod-0", "True")
        assert labels(pod)[LABEL] == "good"
        assert "reason" not in condition(pod, CONDITION), "a daemon without a Lease is not stale"
        npp = await cluster.report()
        (entry,) = npp["spec"]["podProbes"]
        assert entry["probes"][0]["probe"]["httpGet"] == {"port": 80, "path": "/", "scheme": "HTTP"}

        cluster.daemons.result_of = lambda _pod, _probe: ("Failed", "no")
        await cluster.answered()
        assert labels(await cluster.shown("pod-0", "False"))[LABEL] == "bad"
        await cluster.marker(
            "is counted",
            lambda marker: marker.get("status") == {"observedGeneration": 1, "matchedPods": 1},
        )
    before = versions(cluster)
    async with cluster.manager() as second:
        await settled(second)
        assert versions(cluster) == before


async def test_our_crds_replace_kruises_and_give_way_to_them_again(cluster: Cluster) -> None:
    """Markers stay, and each side sees the fields that its definitions have."""
    await cluster.hollow.add_pod(0, node=NODE)
    await cluster.hollow.add_marker()
    async with cluster.manager():
        await cluster.asked()
        await cluster.shown("pod-0", "True")
        replace = ("apply", "--server-side", "--force-conflicts", "-f", "-")
        cluster.kubectl.run(*replace, stdin=crds_of_ours())

        cluster.daemons.result_of = lambda _pod, _probe: ("Failed", "no")
        await until_obeyed(cluster, ours=True)
        await cluster.answered()
        await cluster.shown("pod-0", "False")
        # Not by a watch: one that was opened during the change keeps the status that the old definition pruned.
        path = marker_path("marker", cluster.namespace)

        async def counts() -> bool:
            return bool((await cluster.api.get(path))["status"].get("failed") == 1)

        await until("the marker counts", counts, seconds=CHECK_SECONDS + PATIENCE_SECONDS)
        marker = await cluster.api.get(path)
        assert {each["type"] for each in marker["status"]["conditions"]} >= {"Synced", "Degraded"}

        theirs = {"apiVersion": "v1", "kind": "List", "items": kruise_crds()}
        cluster.kubectl.run("replace", "-f", "-", stdin=json.dumps(theirs))
        await until_obeyed(cluster, ours=False)
        cluster.daemons.result_of = lambda _pod, _probe: ("Succeeded", "fine")
        await cluster.answered()
        await cluster.shown("pod-0", "True")
        await cluster.hollow.remove_marker()
        await cluster.api.markers.until_gone("marker", cluster.namespace)
    pod = cluster.api.pods.newest("pod-0", cluster.namespace)
    assert pod is not None
    assert labels(pod) == {"app": "web"}


async def until_obeyed(cluster: Cluster, *, ours: bool) -> None:
    """A changed definition is obeyed some moments after it was written; ours refuses what Kruise's takes."""
    path = marker_path("", cluster.namespace).rstrip("/") + "?dryRun=All"
    body = {**await cluster.marker(), "metadata": {"name": "trial"}, "status": None}
    body["spec"] = {**body["spec"], "probes": [probe(podConditionType="Ready")]}

    async def is_obeyed() -> bool:
        try:
            await cluster.api.create(path, body)
        except KubeError:
            return ours
        return not ours

    await until("the definition is obeyed", is_obeyed)


class Probed(NamedTuple):
    """A process behind a real CRI, and the file that tells of each tick."""

    uid: str
    ticks: Path

    async def more_ticks(self, count: int) -> None:
        wanted = self.seen() + count

        async def have_come() -> bool:
            return self.seen() >= wanted

        await until("ticks come", have_come)

    def seen(self) -> int:
        return len(self.ticks.read_text().splitlines()) if self.ticks.exists() else 0


def as_kruises_manager_writes(probed: Probed, namespace: str, **more: Any) -> Json:
    command = ["sh", "-c", f"echo >> {probed.ticks}; echo fine"]
    asked = {
        "name": "m#idle",
        "containerName": "main",
        "probe": {"exec": {"command": command}, "periodSeconds": 1, **more},
    }
    entry = {"name": "p", "namespace": namespace, "uid": probed.uid, "IP": "127.0.0.1"}
    return {"podProbes": [{**entry, "probes": [asked]}]}


@pytest.fixture
async def runtime(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedRuntime]:
    async with embedded_runtime(tmp_path_factory.mktemp("r")) as runtime:
        yield runtime


async def test_our_daemon_beside_kruises_manager_and_over_its_crds(
    cluster: Cluster, runtime: EmbeddedRuntime
) -> None:
    """What is pruned of its results is no reason to write them again, nor to forget them when it restarts."""
    sandbox = runtime.sandbox(pod="p", namespace=cluster.namespace)
    runtime.start(["sleep", "1000"], sandbox=sandbox)
    probed = Probed(sandbox.uid, cluster.folder / "ticks")
    await cluster.api.create(
        node_pod_probe_path("").rstrip("/"),
        node_pod_probe(NODE, spec=as_kruises_manager_writes(probed, cluster.namespace)),
    )
    flags = (f"--node-name={NODE}", f"--cri-endpoint={runtime.endpoint}")
    kubeconfig = cluster.plane.kubeconfig
    async with running("daemon", kubeconfig, cluster.folder, *flags):
        report = await cluster.report("has a result", lambda npp: "status" in npp)
        (state,) = report["status"]["podProbeStatuses"][0]["probeStates"]
        assert (state["name"], state["state"], state["message"]) == ("m#idle", "Succeeded", "fine")
        assert not {"containerID", "probeHash"} & state.keys(), "Kruise's definition prunes them"
        await probed.more_ticks(3)
        assert await cluster.report() == report
    async with running("daemon", kubeconfig, cluster.folder, *flags):
        await probed.more_ticks(3)
        after = await cluster.report()
        (again,) = after["status"]["podProbeStatuses"][0]["probeStates"]
        assert (again["state"], again["lastTransitionTime"]) == (
            "Succeeded",
            state["lastTransitionTime"],
        )


async def test_without_a_manager_markers_and_namespaces_end_as_the_guide_says(
    cluster: Cluster,
) -> None:
    """And what was deleted before the uninstall has left nothing."""
    await cluster.hollow.add_pod(0, node=NODE)
    await cluster.hollow.add_marker()
    async with cluster.manager():
        await cluster.asked()
        await cluster.shown("pod-0", "True")
    finalizers = (await cluster.marker())["metadata"]["finalizers"]
    assert finalizers == [MARKER_FINALIZER]
    await cluster.hollow.remove_pod("pod-0")
    cluster.kubectl.run("delete", "namespace", cluster.namespace, "--wait=false")

    async def is_deleted_and_stays() -> bool:
        namespace = cluster.kubectl.get("namespace", cluster.namespace)
        conditions = namespace["status"].get("conditions", ())
        return any(
            each["type"] == "NamespaceFinalizersRemaining" and each["status"] == "True"
            for each in conditions
        )

    await until("the namespace waits", is_deleted_and_stays)
    _clear_finalizers(cluster)

    await cluster.api.markers.until_gone("marker", cluster.namespace)
    gone = ("--for=delete", f"namespace/{cluster.namespace}", "--timeout=120s")
    cluster.kubectl.run("wait", *gone, timeout=3 * PATIENCE_SECONDS)
