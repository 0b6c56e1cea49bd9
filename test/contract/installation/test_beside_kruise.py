"""Beside the halves of OpenKruise and over its definitions, on a control plane of its own: its CRDs are replaced here.

Kruise's halves are played: what its manager writes into a NodePodProbe, and what its daemon writes into the status.
"""

import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from contract.embedded_runtime import EmbeddedRuntime, embedded_runtime
from support.control_plane import ControlPlane, prepared
from support.hollow import (
    CONDITION,
    LABEL,
    Daemons,
    Hollow,
    healthy,
    marker_object,
    node_pod_probe_object,
    probe,
    spec_entry,
)
from support.kruise_crds import kruise_crds
from support.kubectl import Kubectl
from support.pages import blocks
from support.patience import PATIENCE_SECONDS
from support.programs import ALONE, Program, running, until
from support.shell import kruise_probe, run
from support.target import (
    Target,
    condition,
    labels,
    marker_path,
    node_pod_probe_path,
    status_of,
)
from support.wire import Json, typed

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
    plane = ControlPlane(
        Path(os.environ.get("TMPDIR", "/tmp")) / "kp-beside-kruise",
        port=PORT,
    )
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
        async with running(
            "manager",
            self.plane.kubeconfig,
            self.folder,
            ALONE,
        ) as program:
            yield program

    async def shown(self, status: str) -> Json:
        """The pod, once its condition has this status."""
        return await self.api.pods.until(
            f"{CONDITION} is {status}",
            lambda pod: status_of(pod, CONDITION) == status,
            name="pod-0",
            namespace=self.namespace,
        )

    async def marker(self, what: str = "exists", holds: Holds = bool) -> Json:
        """The marker, once it `holds`."""
        markers = self.api.markers
        return await markers.until(
            what,
            holds,
            name="marker",
            namespace=self.namespace,
        )

    async def report(self, what: str = "exists", holds: Holds = bool) -> Json:
        """The node's NodePodProbe, once it `holds`."""
        return await self.api.node_pod_probes.until(what, holds, name=NODE)

    async def answered(self) -> None:
        """Returns once the daemon has written its results; while definitions are replaced, a write may be refused."""

        async def nothing_is_left() -> bool:
            await self.daemons.write_changes()
            return not self.daemons.behind()

        await until("the daemon has written its results", nothing_is_left)

    async def asked(self) -> None:
        """Returns once NodePodProbe.spec has a probe, and the daemon has written its results as Kruise's does."""
        await self.report(
            "has a probe",
            lambda npp: npp["spec"].get("podProbes"),
        )
        await self.answered()


@pytest.fixture
async def cluster(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Cluster]:
    kubectl = Kubectl(str(plane.kubeconfig))
    name = tmp_path.name.replace("_", "-").lower()[:40].strip("-")
    async with prepared(plane, name, crds=kruise_crds()) as api, api.watched():
        hollow = Hollow(api, name)
        await hollow.add_node(NODE)
        yield Cluster(
            plane,
            kubectl,
            api,
            hollow,
            Daemons(api),
            tmp_path,
        )
    crds = ("podprobemarkers.apps.kruise.io", "nodepodprobes.apps.kruise.io")
    kubectl.run("delete", "crd", *crds, "--timeout=120s", timeout=3 * PATIENCE_SECONDS)


def versions(cluster: Cluster) -> dict[str, str]:
    """The resourceVersion of each object that a manager writes."""
    kinds = "podprobemarkers,nodepodprobes,pods"
    found = {}
    for item in cluster.kubectl.items(kinds, "--all-namespaces"):
        metadata = item["metadata"]
        found[f"{item['kind']} {metadata['name']}"] = metadata["resourceVersion"]
    return found


async def settled(manager: Program) -> None:
    """Returns once the manager has reconciled a marker, a node and a pod, and its queues are empty."""

    async def is_settled() -> bool:
        done = await manager.metric("controller_runtime_reconcile_total")
        return done >= 3 and await manager.metric("workqueue_depth") == 0

    await manager.until("has reconciled everything", is_settled)


async def test_our_manager_beside_kruises_daemon_and_over_its_crds(cluster: Cluster) -> None:
    """No Lease, no field of ours anywhere: results reach pods, and a second manager finds nothing to write."""
    await cluster.hollow.add_pod(0, node=NODE)
    web = {"httpGet": {"port": 80}, "periodSeconds": 5}
    await cluster.hollow.add_marker(probe("web", probe=web))
    async with cluster.manager():
        await cluster.asked()
        pod = await cluster.shown("True")
        assert labels(pod)[LABEL] == "good"
        assert "reason" not in condition(pod, CONDITION), "a daemon without a Lease is not stale"
        npp = await cluster.report()
        (entry,) = npp["spec"]["podProbes"]
        assert entry["probes"][0]["probe"]["httpGet"] == {
            "port": 80,
            "path": "/",
            "scheme": "HTTP",
        }

        cluster.daemons.result_of = failing
        await cluster.answered()
        pod = await cluster.shown("False")
        assert labels(pod)[LABEL] == "bad"
        counts = {"observedGeneration": 1, "matchedPods": 1}
        await cluster.marker(
            "has counts",
            lambda marker: marker.get("status") == counts,
        )
    before = versions(cluster)
    async with cluster.manager() as second:
        await settled(second)
        assert versions(cluster) == before


def failing(_pod: str, _probe: str) -> tuple[str, str]:
    return "Failed", "no"


async def test_our_crds_replace_kruises_and_give_way_to_them_again(cluster: Cluster) -> None:
    """Markers stay, and each side sees the fields that its definitions have."""
    await cluster.hollow.add_pod(0, node=NODE)
    await cluster.hollow.add_marker()
    async with cluster.manager():
        await cluster.asked()
        await cluster.shown("True")
        ours = kruise_probe("manifests", "--crds-only", check=True).stdout
        cluster.kubectl.run("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=ours)

        cluster.daemons.result_of = failing
        await until_obeyed(cluster, ours=True)
        await cluster.answered()
        await cluster.shown("False")
        # Not by a watch: one that was opened during the change keeps the status that the old definition pruned.
        status: Json = {}

        async def counts() -> bool:
            nonlocal status
            status = (await cluster.api.get(marker_path("marker", cluster.namespace)))["status"]
            return bool(status.get("failed") == 1)

        await until("the status counts", counts, seconds=CHECK_SECONDS + PATIENCE_SECONDS)
        types = {condition["type"] for condition in status["conditions"]}
        assert types >= {"Synced", "Degraded"}

        theirs = json.dumps(typed("List", items=kruise_crds()))
        cluster.kubectl.run("replace", "-f", "-", stdin=theirs)
        await until_obeyed(cluster, ours=False)
        cluster.daemons.result_of = healthy
        await cluster.answered()
        await cluster.shown("True")
        await cluster.hollow.remove_marker()
        await cluster.api.markers.until_gone("marker", cluster.namespace)
    pod = cluster.api.pods.current("pod-0", cluster.namespace)
    assert labels(pod) == {"app": "web"}


async def until_obeyed(cluster: Cluster, *, ours: bool) -> None:
    """A changed definition takes effect some time after it is written; ours refuses what Kruise's accepts."""
    path = marker_path("", cluster.namespace).rstrip("/") + "?dryRun=All"
    body = marker_object(probe(podConditionType="Ready"), name="trial")

    async def is_obeyed() -> bool:
        try:
            await cluster.api.create(path, body)
        except KubeError:
            return ours
        return not ours

    await until("the definition is obeyed", is_obeyed)


async def three_more_lines(file: Path) -> None:
    """Returns once the file, which may not exist yet, has three more lines."""

    def lines() -> int:
        return file.read_text().count("\n") if file.exists() else 0

    wanted = lines() + 3

    async def have_come() -> bool:
        return lines() >= wanted

    await until(f"{file} has three more lines", have_come)


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
    ticks = cluster.folder / "ticks"
    command = ["sh", "-c", f"echo >> {ticks}; echo fine"]
    handler = {"exec": {"command": command}, "periodSeconds": 1}
    probes = [
        {
            "name": "m#idle",
            "containerName": "main",
            "probe": handler,
        }
    ]
    entry = spec_entry(
        "p",
        sandbox.uid,
        probes,
        namespace=cluster.namespace,
        ip="127.0.0.1",
    )
    path = node_pod_probe_path("").rstrip("/")
    await cluster.api.create(path, node_pod_probe_object(NODE, [entry]))
    flags = (f"--node-name={NODE}", f"--cri-endpoint={runtime.endpoint}")
    kubeconfig = cluster.plane.kubeconfig
    async with running("daemon", kubeconfig, cluster.folder, *flags):
        report = await cluster.report(
            "has a result",
            lambda npp: "status" in npp,
        )
        (state,) = report["status"]["podProbeStatuses"][0]["probeStates"]
        assert (state["name"], state["state"], state["message"]) == ("m#idle", "Succeeded", "fine")
        assert not {"containerID", "probeHash"} & state.keys(), "Kruise's definition prunes them"
        await three_more_lines(ticks)
        assert await cluster.report() == report
    async with running("daemon", kubeconfig, cluster.folder, *flags):
        await three_more_lines(ticks)
        after = await cluster.report()
        (again,) = after["status"]["podProbeStatuses"][0]["probeStates"]
        assert again["state"] == "Succeeded"
        assert again["lastTransitionTime"] == state["lastTransitionTime"]


async def test_without_a_manager_markers_and_namespaces_end_as_the_guide_says(
    cluster: Cluster,
) -> None:
    """And what was deleted before the uninstall has left nothing."""
    await cluster.hollow.add_pod(0, node=NODE)
    await cluster.hollow.add_marker()
    async with cluster.manager():
        await cluster.asked()
        await cluster.shown("True")
    marker = await cluster.marker()
    assert marker["metadata"]["finalizers"] == [MARKER_FINALIZER]
    await cluster.hollow.remove_pod("pod-0")
    cluster.kubectl.run("delete", "namespace", cluster.namespace, "--wait=false")

    async def is_deleted_and_stays() -> bool:
        namespace = cluster.kubectl.get("namespace", cluster.namespace)
        return status_of(namespace, "NamespaceFinalizersRemaining") == "True"

    await until("the namespace waits", is_deleted_and_stays)
    (guide,) = [block for block in blocks("sh") if "finalizers" in block.text]
    assert guide.heading == "Uninstall"
    ran = await run(guide.text, kubeconfig=cluster.plane.kubeconfig, folder=cluster.folder)
    assert ran.code == 0, ran.err

    await cluster.api.markers.until_gone("marker", cluster.namespace)
    gone = ("--for=delete", f"namespace/{cluster.namespace}", "--timeout=120s")
    cluster.kubectl.run("wait", *gone, timeout=3 * PATIENCE_SECONDS)
