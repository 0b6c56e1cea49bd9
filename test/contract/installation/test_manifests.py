"""The three ways to install say the same, and a real API server takes it."""

import dataclasses
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from support.cases import cases
from support.kubectl import Kubectl, KubectlError
from support.wire import Json, typed

from kruise_probe.cli.flag_types import LISTEN_ADDRESS
from kruise_probe.cli.gates import SERVERLESS, parse_gates
from kruise_probe.manifests.install import Install, daemon, default_install, manager

Identity = tuple[str, str]
CHECKOUT = Path(__file__).resolve().parents[3]
CHART = CHECKOUT / "config" / "chart"
NEWEST = "1.37.2"
RELEASE_LABELS = ("app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart")
"""What helm alone adds."""


def by_identity(documents: list[Json]) -> dict[Identity, Json]:
    found = {(document["kind"], document["metadata"]["name"]): document for document in documents}
    assert len(found) == len(documents)
    return found


def parsed(text: str) -> list[Json]:
    return [document for document in yaml.safe_load_all(text) if document]


def config(name: str) -> Json:
    """The object of a file below config."""
    found: Json = yaml.safe_load((CHECKOUT / "config" / name).read_text())
    return found


def helm(*arguments: str) -> str:
    command = [str(CHECKOUT / "hack" / "helm"), *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def template(*values: str, version: str = NEWEST, namespace: str = "kruise-system") -> list[Json]:
    settings = [f"--set={value}" for value in values]
    flags = ["--namespace", namespace, "--kube-version", version, "--skip-tests"]
    documents = parsed(
        helm(
            "template",
            "r",
            str(CHART),
            *flags,
            *settings,
        )
    )
    for document in documents:
        if document["kind"] != "CustomResourceDefinition":
            for name in RELEASE_LABELS:
                del document["metadata"]["labels"][name]
    return documents


def built(
    admin: Kubectl,
    folder: Path,
    bases: Sequence[str],
    components: Sequence[str] = (),
    **more: str,
) -> list[Json]:
    """What a kustomization of a user's own makes of bases below config."""
    place = os.path.relpath(CHECKOUT / "config", folder)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{place}/{base}" for base in bases],
        "components": [f"{place}/{component}" for component in components],
        **more,
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return parsed(admin.run("kustomize", str(folder), "--load-restrictor=LoadRestrictionsNone"))


@pytest.fixture
def namespace(admin: Kubectl) -> Iterator[str]:
    with admin.new_namespace() as kubectl:
        yield kubectl.namespace


@cases(
    "component install",
    none=("", Install()),
    webhook=("webhook", Install(webhook=True)),
    own_reads=("own-node-reads", Install(own_node_reads=True)),
)
def test_kustomize_makes_what_the_command_makes(
    admin: Kubectl, tmp_path: Path, component: str, install: Install
) -> None:
    if component:
        documents = built(admin, tmp_path, ["default"], [component])
    else:
        base = str(CHECKOUT / "config" / "default")
        documents = parsed(admin.run("kustomize", base))

    assert by_identity(documents) == by_identity(default_install(install))


GATE = "EnablePodProbeMarkerOnServerless"
SOCKET = "/tmp/x/containerd.sock"
ALLOWED = frozenset({"topology.kubernetes.io/zone", "pod-template-hash"})
WEBHOOK = Install(webhook=True, serverless=True, feature_gates={GATE: True})


@cases(
    "values install",
    default=((), Install()),
    replicas=(("manager.replicas=3",), Install(replicas=3)),
    allowed_labels=(
        (f"manager.allowedLabelKeys={{{','.join(ALLOWED)}}}",),
        Install(allowed_label_keys=ALLOWED),
    ),
    socket=((f"daemon.socket={SOCKET}",), Install(cri_socket=SOCKET)),
    webhook=(("webhook.enabled=true", f"featureGates.{GATE}=true"), WEBHOOK),
    webhook_with_cert_manager=(
        ("webhook.enabled=true", "webhook.certManager=true", f"featureGates.{GATE}=true"),
        dataclasses.replace(WEBHOOK, cert_manager=True),
    ),
    plain_metrics=(("metrics.secure=false",), Install(metrics_secure=False)),
    own_reads=(("ownNodeReads.enabled=true",), Install(own_node_reads=True)),
)
def test_the_chart_makes_what_the_command_makes(
    admin: Kubectl, values: tuple[str, ...], install: Install
) -> None:
    rendered = by_identity(template(*values))
    expected = by_identity(default_install(install))
    del expected["Namespace", "kruise-system"]  # helm install --create-namespace
    for kind, name in expected:
        if kind == "CustomResourceDefinition":
            kept = rendered[kind, name]["metadata"].pop("annotations")
            assert kept == {"helm.sh/resource-policy": "keep"}

    assert rendered == expected


@pytest.mark.parametrize("secure", [True, False])
def test_monitors_follow_metrics_secure(admin: Kubectl, secure: bool) -> None:
    rendered = by_identity(
        template(
            f"metrics.secure={str(secure).lower()}",
            "manager.serviceMonitor.enabled=true",
            "daemon.listenOnNode=true",
            "daemon.podMonitor.enabled=true",
        )
    )
    (of_manager,) = rendered["ServiceMonitor", "kruise-probe-manager-metrics"]["spec"]["endpoints"]
    (of_daemon,) = rendered["PodMonitor", "kruise-probe-daemon"]["spec"]["podMetricsEndpoints"]

    for endpoint in (of_manager, of_daemon):
        assert (endpoint.get("scheme") == "https") is secure
    assert ("bearerTokenFile" in of_manager) is secure
    assert ("authorization" in of_daemon) is secure
    # A probe's series have its namespace, pod and container; so have the operator's own labels, of the daemon's pod.
    assert (of_daemon["port"], of_daemon["honorLabels"]) == ("metrics", True)
    if secure:
        monitors = parsed((CHECKOUT / "config/prometheus/monitor.yaml").read_text())
        for identity, monitor in by_identity(monitors).items():
            assert rendered[identity] == monitor


@pytest.mark.parametrize(
    "gates",
    [
        "EnablePodProbeMarkerOnServerless=true",
        "AllAlpha=true",
        "AllAlpha=false",
        "AllAlpha=true,EnablePodProbeMarkerOnServerless=false",
        "AllAlpha=false,EnablePodProbeMarkerOnServerless=true",
        "AllBeta=true",
    ],
)
def test_the_chart_reads_gates_as_the_manager_does(admin: Kubectl, gates: str) -> None:
    settings = [f"featureGates.{gate}" for gate in gates.split(",")]
    rendered = template("webhook.enabled=true", *settings)

    has_webhook = "MutatingWebhookConfiguration" in kinds_of(rendered)
    assert has_webhook == SERVERLESS.enabled(parse_gates(gates))


def kinds_of(documents: list[Json]) -> set[str]:
    return {document["kind"] for document in documents}


@pytest.mark.parametrize("node_ip", ["10.0.0.1", "fd00::5"])
def test_the_daemon_listens_on_its_node_of_either_family(admin: Kubectl, node_ip: str) -> None:
    rendered = by_identity(template("daemon.listenOnNode=true"))
    pod = rendered["DaemonSet", "kruise-probe-daemon"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (flag,) = [text for text in container["args"] if text.startswith("--addr=")]
    address = flag.removeprefix("--addr=").replace("$(NODE_IP)", node_ip)

    assert LISTEN_ADDRESS.convert(address, None, None) == (node_ip, 10221)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_chart_is_one_that_others_depend_on(
    admin: Kubectl, tmp_path: Path, enabled: bool
) -> None:
    """What their condition reads, helm hands down, beside what is global."""
    own = config("chart/Chart.yaml")
    dependency = {
        "name": own["name"],
        "version": own["version"],
        "condition": "kruise-probe.enabled",
    }
    above = {
        "apiVersion": "v2",
        "name": "above",
        "version": "0.1.0",
        "dependencies": [dependency],
    }
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(above))
    values = {"global": {"imageRegistry": "example.com"}, "kruise-probe": {"enabled": enabled}}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    shutil.copytree(CHART, tmp_path / "charts" / "kruise-probe")

    assert bool(parsed(helm("template", "r", str(tmp_path), "--kube-version", NEWEST))) == enabled


def test_the_chart_says_what_an_old_cluster_lacks(admin: Kubectl) -> None:
    with pytest.raises(AssertionError, match=r"requires Kubernetes 1\.30"):
        template(version="1.29.0")
    with pytest.raises(AssertionError, match=r"requires Kubernetes 1\.36"):
        template("ownNodeReads.enabled=true", version="1.35.9")
    kinds = kinds_of(template("admissionPolicy.enabled=false", version="1.29.0"))
    assert not any(kind.startswith("ValidatingAdmissionPolicy") for kind in kinds)


EVERYTHING = (
    "ownNodeReads.enabled=true",
    "manager.allowedLabelKeys={topology.kubernetes.io/zone}",
    "webhook.enabled=true",
    "featureGates.EnablePodProbeMarkerOnServerless=true",
    "manager.networkPolicy.enabled=true",
    "manager.serviceMonitor.enabled=true",
    "daemon.listenOnNode=true",
    "daemon.podMonitor.enabled=true",
    "daemon.socket=/run/x/cri.sock",
    "prometheusRule.enabled=true",
    "dashboard.enabled=true",
)
NEEDS_MORE = ("monitoring.coreos.com", "cert-manager.io")
"""Groups of the Prometheus operator and of cert-manager, which this cluster has not."""


@pytest.mark.parametrize(
    "way",
    ["command", "command-with-webhook", "helm", "helm-with-everything", "kustomize"],
)
def test_a_real_api_server_takes_all_of_it(
    admin: Kubectl, namespace: str, tmp_path: Path, way: str
) -> None:
    match way:
        case "command":
            documents = default_install(Install(namespace=namespace))
        case "command-with-webhook":
            install = Install(namespace=namespace, webhook=True, serverless=True)
            documents = default_install(install)
        case "helm":
            documents = template(namespace=namespace)
        case "helm-with-everything":
            documents = template(*EVERYTHING, namespace=namespace)
        case _:
            bases = ("default", "prometheus", "samples")
            documents = built(
                admin,
                tmp_path,
                bases,
                ["webhook"],
                namespace=namespace,
            )
    served = [
        document for document in documents if not document["apiVersion"].startswith(NEEDS_MORE)
    ]
    admin.install_crds()

    flags = ("--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    listed = json.dumps(typed("List", items=served))
    said = admin.run("apply", *flags, "-f", "-", stdin=listed)

    items = sum(len(document.get("items", (document,))) for document in served)
    assert len(said.splitlines()) == items


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("manager.replicas=two", "/manager/replicas"),
        ("manager.replicsa=2", "/manager"),
        ("daemon.socket=run/x.sock", "/daemon/socket"),
        ("daemon.socket=/x.sock", "/daemon/socket"),
        ("daemon.socket=/run/../x.sock", "/daemon/socket"),
        ("daemon.socketFolder=/", "/daemon/socketFolder"),
        ("daemon.tolerations[0].operater=Exists", "/daemon/tolerations/0"),
        ("featureGates.PodProbeMarker=true", "/featureGates"),
        ("featureGates.KruiseDaemon=yes", "/featureGates/KruiseDaemon"),
        ("image.pullPolicy=Sometimes", "/image/pullPolicy"),
        ("webhook.enabled=1", "/webhook/enabled"),
        ("dashbord.enabled=true", "dashbord"),
    ],
)
def test_the_chart_refuses_a_wrong_value_by_its_path(admin: Kubectl, value: str, path: str) -> None:
    with pytest.raises(AssertionError) as refused:
        template(value)

    said = str(refused.value)
    assert "values don't meet the specifications of the schema" in said
    assert path in said or path.strip("/").replace("/", ".") in said


def test_alerts_and_dashboard_come_with_chart_and_kustomize(admin: Kubectl, tmp_path: Path) -> None:
    alerts = "PrometheusRule", "kruise-probe"
    dashboard = "ConfigMap", "kruise-probe-dashboard"
    values = ("prometheusRule.enabled=true", "prometheusRule.labels.release=operator")
    chart = by_identity(template(*values, "dashboard.enabled=true"))
    kustomize = by_identity(built(admin, tmp_path, ["prometheus"]))

    assert kustomize[alerts] == config("prometheus/alerts.yaml")
    assert chart[alerts]["metadata"]["labels"].pop("release") == "operator"
    assert chart[alerts] == kustomize[alerts]
    assert chart[dashboard] == kustomize[dashboard]
    assert chart[dashboard]["metadata"]["labels"] == {"grafana_dashboard": "1"}


def test_the_managers_pod_is_restricted_and_the_daemons_is_not(
    admin: Kubectl, namespace: str
) -> None:
    admin.run("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    install = Install(namespace=namespace)
    for account in ("kruise-probe-manager", "kruise-probe-daemon"):
        admin.run("create", "serviceaccount", account, "-n", namespace)

    def run(workload: Json) -> None:
        template = workload["spec"]["template"]
        metadata = {
            "name": "p",
            "namespace": namespace,
            **template["metadata"],
        }
        pod = typed("Pod", metadata=metadata, spec=template["spec"])
        admin.run("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))

    run(manager(install))
    with pytest.raises(KubectlError, match="violates PodSecurity"):
        run(daemon(install))
