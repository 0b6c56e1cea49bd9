"""The three ways to install say the same, and a real API server takes it."""

import dataclasses
import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.kubectl import Kubectl, KubectlError

from kruise_probe.manifests.install import default_install
from kruise_probe.manifests.monitoring import monitoring
from kruise_probe.manifests.webhook import webhook
from kruise_probe.manifests.workloads import Install, daemon, manager

Json = dict[str, Any]
Identity = tuple[str, str]
CHECKOUT = Path(__file__).resolve().parents[3]
CHART = CHECKOUT / "config" / "chart"
NEWEST = "1.36.3"


def by_identity(documents: list[Json]) -> dict[Identity, Json]:
    found = {(each["kind"], each["metadata"]["name"]): each for each in documents}
    assert len(found) == len(documents)
    return found


def parsed(text: str) -> list[Json]:
    return [each for each in yaml.safe_load_all(text) if each]


def helm(*arguments: str) -> str:
    command = [str(CHECKOUT / "hack" / "helm"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def template(*values: str, version: str = NEWEST) -> list[Json]:
    settings = [word for each in values for word in ("--set", each)]
    version_flag = ["--kube-version", version]
    return parsed(
        helm("template", "r", str(CHART), "-n", "kruise-system", *version_flag, *settings)
    )


@pytest.fixture
def namespace(admin: Kubectl) -> Iterator[str]:
    name = f"contract-{uuid.uuid4().hex[:8]}"
    admin.run("create", "namespace", name)
    yield name
    admin.run("delete", "namespace", name, "--wait=false")


def test_kustomize_makes_the_default_install(admin: Kubectl) -> None:
    built = parsed(admin.run("kustomize", str(CHECKOUT / "config" / "default")))

    assert by_identity(built) == by_identity(default_install(Install()))


def test_the_chart_makes_the_default_install(admin: Kubectl) -> None:
    rendered = by_identity(template("manager.podDisruptionBudget.enabled=false"))
    expected = by_identity(default_install(Install()))
    del expected["Namespace", "kruise-system"]  # helm install --create-namespace
    for kind, name in expected:
        if kind == "CustomResourceDefinition":
            kept = rendered[kind, name]["metadata"].pop("annotations")
            assert kept == {"helm.sh/resource-policy": "keep"}

    assert rendered.keys() == expected.keys()
    for identity, each in expected.items():
        assert rendered[identity] == each, identity


def test_the_chart_follows_its_values(admin: Kubectl) -> None:
    socket = "/tmp/x/containerd.sock"
    gate = "EnablePodProbeMarkerOnServerless"
    rendered = by_identity(
        template(
            "manager.replicas=3",
            f"daemon.socket={socket}",
            f"featureGates.{gate}=true",
            "manager.serviceMonitor.enabled=true",
            "manager.podDisruptionBudget.enabled=false",
        )
    )
    install = Install(replicas=3, cri_socket=socket, feature_gates=f"{gate}=true")

    assert rendered["Deployment", "kruise-probe-manager"] == manager(install)
    assert rendered["DaemonSet", "kruise-probe-daemon"] == daemon(install)
    for each in monitoring("kruise-system"):
        assert rendered[each["kind"], each["metadata"]["name"]] == each


def test_the_chart_says_what_an_old_cluster_lacks(admin: Kubectl) -> None:
    with pytest.raises(AssertionError, match=r"needs Kubernetes 1\.30"):
        template(version="1.29.0")
    kinds = {each["kind"] for each in template("admissionPolicy.enabled=false", version="1.29.0")}
    assert not any(kind.startswith("ValidatingAdmissionPolicy") for kind in kinds)


@pytest.mark.parametrize("by", ["command", "webhook", "helm"])
def test_a_real_api_server_takes_it(admin: Kubectl, namespace: str, by: str) -> None:
    if by != "helm":
        install = Install(namespace=namespace, webhook=by == "webhook", serverless=True)
        documents = default_install(install)
    else:
        everything = ["manager.networkPolicy.enabled=true", "daemon.listenOnNode=true"]
        documents = [
            {**each, "metadata": {**each["metadata"], "namespace": namespace}}
            for each in template(*everything)
            if each["kind"] in ("Deployment", "DaemonSet", "NetworkPolicy", "PodDisruptionBudget")
        ]
        assert len(documents) == 4
    listed = {"apiVersion": "v1", "kind": "List", "items": documents}

    admin.run(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict",
        "-f", "-", stdin=json.dumps(listed),
    )  # fmt: skip


def test_the_managers_pod_is_restricted_and_the_daemons_is_not(
    admin: Kubectl, namespace: str
) -> None:
    admin.run("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    install = Install(namespace=namespace)
    for account in ("kruise-probe-manager", "kruise-probe-daemon"):
        admin.run("create", "serviceaccount", account, "-n", namespace)

    def run(workload: Json) -> None:
        template = workload["spec"]["template"]
        metadata = {"name": "p", "namespace": namespace, **template["metadata"]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        admin.run("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))

    run(manager(install))
    with pytest.raises(KubectlError, match="violates PodSecurity"):
        run(daemon(install))


@pytest.mark.parametrize("cert_manager", [False, True])
def test_the_webhook_is_the_same_by_chart_and_by_command(
    admin: Kubectl, cert_manager: bool
) -> None:
    gate = "EnablePodProbeMarkerOnServerless"
    rendered = by_identity(
        template(
            "webhook.enabled=true",
            f"webhook.certManager={str(cert_manager).lower()}",
            f"featureGates.{gate}=true",
        )
    )
    install = Install(webhook=True, cert_manager=cert_manager, serverless=True)

    assert rendered["Deployment", "kruise-probe-manager"] == manager(
        dataclasses.replace(install, feature_gates=f"{gate}=true")
    )
    for each in webhook("kruise-system", serverless=True, cert_manager=cert_manager):
        assert rendered[each["kind"], each["metadata"]["name"]] == each


def test_the_webhook_is_a_component_of_kustomize(admin: Kubectl, tmp_path: Path) -> None:
    config = os.path.relpath(CHECKOUT / "config", tmp_path)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{config}/default"],
        "components": [f"{config}/webhook"],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))

    built = parsed(admin.run("kustomize", str(tmp_path), "--load-restrictor=LoadRestrictionsNone"))

    assert by_identity(built) == by_identity(default_install(Install(webhook=True)))
