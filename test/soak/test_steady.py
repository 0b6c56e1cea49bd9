"""Thirty pods of a real node with three constant probes each: nothing is written but Leases."""

import asyncio
import os
import secrets
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import programs
from support.forms import forms
from support.hollow import marker_object
from support.kubectl import Kubectl, Object
from support.output import print_line
from support.patience import PATIENCE_SECONDS
from support.programs import ALONE
from support.proxy import faulty_proxy
from support.real_node import busybox_pod

from kruise_probe.client.config import load_config
from kruise_probe.manifests.crds import all_crds

SYSTEM = "kruise-system"
NAMESPACE = f"soak-steady-{secrets.token_hex(3)}"


@pytest.fixture
def admin() -> Iterator[Kubectl]:
    kubeconfig = os.environ.get("KUBECONFIG")
    if not kubeconfig or not os.environ.get("KRUISE_PROBE_CRI_ENDPOINT"):
        pytest.skip('needs a node: eval "$(hack/cluster env)"')
    kubectl = Kubectl(kubeconfig)
    system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
    own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    kubectl.apply(system, own, *all_crds())
    kubectl.until_established()
    inside = Kubectl(kubeconfig, namespace=NAMESPACE)
    yield inside
    # No manager runs any more that would remove the finalizer of a marker after a failure.
    for each in inside.items("podprobemarkers"):
        free = ("--type=merge", '--patch={"metadata":{"finalizers":null}}')
        inside.run("patch", "podprobemarker", each["metadata"]["name"], *free)
    kubectl.run("delete", "namespace", NAMESPACE, "--timeout=120s", timeout=130)


def pod(name: str) -> Object:
    script = "cd /tmp; exec httpd -f -p 8080"
    made = busybox_pod(name, "sh", "-c", script, labels={"app": "steady"})
    made["metadata"]["namespace"] = NAMESPACE
    return made


def marker() -> Object:
    how = {
        "succeeds": {"exec": {"command": ["true"]}, "periodSeconds": 10, "timeoutSeconds": 10},
        "reached": {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "timeoutSeconds": 10},
        "refused": {"tcpSocket": {"port": 9}, "periodSeconds": 1, "timeoutSeconds": 10},
    }
    probes = [
        {
            "name": name,
            "containerName": "main",
            "probe": probe,
            "podConditionType": f"example.com/{name}",
            "markerPolicy": [{"state": "Succeeded", "labels": {f"example.com/{name}": "yes"}}],
        }
        for name, probe in how.items()
    ]
    made = marker_object(*probes, name="steady", app="steady")
    made["metadata"]["namespace"] = NAMESPACE
    return made


def versions(admin: Kubectl) -> dict[tuple[str, str], str]:
    """The resourceVersion of each object that a result could change, by kind and name."""
    namespaced = admin.items("pods,podprobemarkers,events")
    return {
        (each["kind"], each["metadata"]["name"]): each["metadata"]["resourceVersion"]
        for each in [*namespaced, *admin.items("nodepodprobes")]
    }


@forms(short="5-pods-15-s", long="30-pods-5-minutes")
async def test_a3_constant_results_are_written_once(
    admin: Kubectl, short: bool, tmp_path: Path
) -> None:
    count = 5 if short else 30
    admin.apply(*[pod(f"steady-{number}") for number in range(count)])
    admin.run("wait", "--for=condition=Ready", "pod", "--all", "--timeout=180s", timeout=190)
    node = admin.items("nodes")[0]["metadata"]["name"]
    flags = (f"--node-name={node}", f"--cri-endpoint={os.environ['KRUISE_PROBE_CRI_ENDPOINT']}")
    config = load_config(admin.kubeconfig)
    async with (
        faulty_proxy(config) as managers,
        faulty_proxy(config) as daemons,
        programs.running("manager", managers.write_kubeconfig(tmp_path, "m"), tmp_path, ALONE),
        programs.running(
            "daemon", daemons.write_kubeconfig(tmp_path, "d"), tmp_path, *flags
        ) as daemon,
    ):
        admin.apply(marker())

        async def complete() -> bool:
            found = await asyncio.to_thread(admin.items, "pods")
            return all(
                sum(each["type"].startswith("example.com/") for each in one["status"]["conditions"])
                == 3
                for one in found
            )

        await daemon.until("three conditions on every pod", complete, seconds=2 * PATIENCE_SECONDS)
        seen = [Counter[str]()]

        async def settled() -> bool:
            await asyncio.sleep(5.0)
            seen.append(managers.writes() + daemons.writes())
            return seen[-1] == seen[-2]

        await daemon.until("nothing is written any more", settled)
        seconds = 15.0 if short else 300.0
        before = await asyncio.to_thread(versions, admin)
        probed = await daemon.metric("prober_probe_total")
        await asyncio.sleep(seconds)
        written = managers.writes() + daemons.writes() - seen[-1]
        after = await asyncio.to_thread(versions, admin)
        probed = await daemon.metric("prober_probe_total") - probed
        print_line(
            f"{count} pods, {seconds:g} s, {probed:g} probes: {dict(written) or 'no writes'}"
        )
        leases = managers.writes(leases=True) + daemons.writes(leases=True)
        print_line(f"with Leases, since the start: {dict(leases)}")
        assert probed > count * seconds
        assert not written
        assert after == before
        gone = ("delete", "podprobemarkers", "--all", "--timeout=60s")
        await asyncio.to_thread(admin.run, *gone)
