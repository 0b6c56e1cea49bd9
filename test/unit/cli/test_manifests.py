"""`kruise-probe manifests`: its flags change the YAML that it prints."""

from pathlib import Path

import pytest
import yaml
from support.cases import cases
from support.wire import Json

from kruise_probe.cli.main import run


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Json]:
    assert run(["manifests", *arguments], {}) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def arguments_of(workload: Json) -> list[str]:
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    arguments: list[str] = container["args"]
    return arguments


GATE = "--feature-gates=EnablePodProbeMarkerOnServerless=true"
VALIDATING = "ValidatingWebhookConfiguration"
MUTATING = "MutatingWebhookConfiguration"
POLICY = "ValidatingAdmissionPolicy"


@cases(
    "flags present absent",
    default=([], {"Deployment", "DaemonSet", POLICY}, {VALIDATING, MUTATING}),
    old_cluster=(["--admission-policy=false"], set(), {POLICY}),
    webhook=(["--webhook"], {VALIDATING, "Secret"}, {MUTATING}),
    webhook_for_serverless_pods=(["--webhook", GATE], {MUTATING}, set()),
    cert_manager=(["--webhook", "--cert-manager"], {"Certificate"}, {"Secret"}),
    crds_only=(
        ["--crds-only"],
        {"CustomResourceDefinition"},
        {"Namespace", "Deployment", "DaemonSet"},
    ),
)
def test_flags_select_the_objects(
    capsys: pytest.CaptureFixture[str], flags: list[str], present: set[str], absent: set[str]
) -> None:
    kinds = {document["kind"] for document in printed(capsys, *flags)}

    assert present <= kinds
    assert kinds.isdisjoint(absent)


@cases(
    "arguments warned",
    gate=([GATE], True),
    gate_and_webhook=([GATE, "--webhook"], False),
    crds=([GATE, "--crds-only"], False),
    default=([], False),
)
def test_serverless_gate_without_webhook_prints_a_warning(
    arguments: list[str], warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["manifests", *arguments], {}) == 0

    err = capsys.readouterr().err
    assert ("without the webhook" in err) == warned
    assert ("add --webhook" in err) == warned


@cases(
    "arguments checkout warned",
    checkout=([], True, True),
    own_image=(["--image=x:y"], True, False),
    crds=(["--crds-only"], True, False),
    release=([], False, False),
)
def test_default_image_in_a_checkout_prints_a_warning(
    arguments: list[str],
    checkout: bool,
    warned: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    if not checkout:
        monkeypatch.setattr("kruise_probe.cli.manifests._DOCKERFILE", tmp_path / "Dockerfile")

    assert run(["manifests", *arguments], {}) == 0

    assert ("docker build --tag IMAGE ." in capsys.readouterr().err) == warned


def test_flags_reach_the_workloads(capsys: pytest.CaptureFixture[str]) -> None:
    documents = printed(
        capsys,
        "--namespace=elsewhere",
        "--image=x:y",
        "--image-pull-policy=Never",
        "--replicas=3",
        "--feature-gates=AllAlpha=true",
        "--cri-socket=/x/y.sock",
    )
    *_, manager, daemon = documents

    assert manager["spec"]["replicas"] == 3
    assert "--cri-endpoint=unix:///host/x/y.sock" in arguments_of(daemon)
    for workload in (manager, daemon):
        assert workload["metadata"]["namespace"] == "elsewhere"
        assert "--feature-gates=AllAlpha=true" in arguments_of(workload)
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        assert container["image"] == "x:y"
        assert container["imagePullPolicy"] == "Never"


def test_allowed_label_keys_reach_manager_and_crd(capsys: pytest.CaptureFixture[str]) -> None:
    flag = "--allowed-label-keys=pod-template-hash,topology.kubernetes.io/zone"
    documents = printed(capsys, flag)
    (crd,) = [
        document
        for document in printed(capsys, "--crds-only", flag)
        if document["metadata"]["name"] == "podprobemarkers.apps.kruise.io"
    ]
    (manager,) = [document for document in documents if document["kind"] == "Deployment"]

    assert 'k in ["pod-template-hash","topology.kubernetes.io/zone"] ||' in str(crd)
    assert flag in arguments_of(manager)
