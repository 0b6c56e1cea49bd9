"""`kruise-probe manifests`: YAML that follows its flags."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cases import cases

from kruise_probe.cli.main import run


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert run(["manifests", *arguments], {}) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def kinds(documents: list[dict[str, Any]]) -> set[str]:
    return {each["kind"] for each in documents}


WEBHOOKS = {"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}
OBJECTS = {
    "default": ([], {"Deployment", "DaemonSet", "ValidatingAdmissionPolicy"}, WEBHOOKS),
    "old-cluster": (["--admission-policy=false"], set(), {"ValidatingAdmissionPolicy"}),
    "webhook": (["--webhook"], {"ValidatingWebhookConfiguration", "Secret"}, {"MutatingWebhookConfiguration"}),
    "webhook-for-serverless-pods": (
        ["--webhook", "--feature-gates=EnablePodProbeMarkerOnServerless=true"],
        {"MutatingWebhookConfiguration"}, set(),
    ),
    "cert-manager": (["--webhook", "--cert-manager"], {"Certificate"}, {"Secret"}),
    "crds-only": (["--crds-only"], {"CustomResourceDefinition"}, {"Namespace", "Deployment", "DaemonSet"}),
}  # fmt: skip


@cases("arguments present absent", **OBJECTS)
def test_flags_select_the_objects(
    capsys: pytest.CaptureFixture[str], arguments: list[str], present: set[str], absent: set[str]
) -> None:
    found = kinds(printed(capsys, *arguments))

    assert present <= found
    assert not absent & found


GATE = "--feature-gates=EnablePodProbeMarkerOnServerless=true"


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

    assert ("without the webhook" in (err := capsys.readouterr().err)) == warned
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
    manager, daemon = documents[-2:]

    assert manager["spec"]["replicas"] == 3
    (of_manager,) = manager["spec"]["template"]["spec"]["containers"]
    (of_daemon,) = daemon["spec"]["template"]["spec"]["containers"]
    for container in (of_manager, of_daemon):
        assert (container["image"], container["imagePullPolicy"]) == ("x:y", "Never")
        assert "--feature-gates=AllAlpha=true" in container["args"]
    assert {each["metadata"]["namespace"] for each in (manager, daemon)} == {"elsewhere"}
    assert "--cri-endpoint=unix:///host/x/y.sock" in of_daemon["args"]


def test_allowed_label_keys_reach_manager_and_crd(capsys: pytest.CaptureFixture[str]) -> None:
    keys = "pod-template-hash,topology.kubernetes.io/zone"
    (crd,) = [
        each
        for each in printed(capsys, "--crds-only", f"--allowed-label-keys={keys}")
        if each["metadata"]["name"] == "podprobemarkers.apps.kruise.io"
    ]
    (manager,) = [
        each
        for each in printed(capsys, f"--allowed-label-keys={keys}")
        if each["kind"] == "Deployment"
    ]

    assert 'k in ["pod-template-hash","topology.kubernetes.io/zone"] ||' in str(crd)
    args = manager["spec"]["template"]["spec"]["containers"][0]["args"]
    assert f"--allowed-label-keys={keys}" in args
