"""kruise-probe as it is installed, by hack/e2e-installed: what runs, and what its tokens may not do."""

import json
from collections.abc import Iterator

import pytest
from support.hollow import marker_object, probe
from support.kubectl import Kubectl, KubectlError
from support.patience import PATIENCE_SECONDS
from support.real_node import busybox_pod
from support.target import status_of

SYSTEM = "kruise-system"
MANAGERS = "app.kubernetes.io/component=manager"
CONDITION = "install.example.com/idle"
POD = busybox_pod("game", "sleep", "100000", labels={"app": "install"})
IDLE = probe(
    "idle",
    probe={"exec": {"command": ["test", "-f", "/tmp/idle"]}, "timeoutSeconds": 20},
    podConditionType=CONDITION,
    markerPolicy=None,
)
MARKER = marker_object(IDLE, name="install", app="install")


@pytest.fixture(scope="module")
def system(admin: Kubectl) -> Kubectl:
    return Kubectl(admin.kubeconfig, namespace=SYSTEM)


@pytest.fixture(scope="module")
def probed(system: Kubectl, namespace: Kubectl) -> Iterator[Kubectl]:
    namespace.apply(POD, MARKER)
    until_condition(namespace, "False")
    yield namespace
    namespace.run("delete", "podprobemarker", "install", "--timeout=60s")


def until_condition(namespace: Kubectl, status: str, timeout: float = PATIENCE_SECONDS) -> None:
    with namespace.watch("pods") as pods:
        pods.until(
            f"the condition is {status}",
            lambda newest: "game" in newest and status_of(newest["game"], CONDITION) == status,
            timeout=timeout,
        )


def test_the_other_manager_takes_over(system: Kubectl, probed: Kubectl) -> None:
    holder = lease_holder(system)
    pod = holder.rpartition("_")[0].rpartition("_")[0]

    with system.watch("leases") as leases:
        leases.until("the lease is seen", lambda newest: "kruise-probe-manager" in newest)
        system.run("delete", "pod", pod, "--wait=false")
        leases.until(
            "another manager leads",
            lambda newest: (
                "kruise-probe-manager" in newest
                and newest["kruise-probe-manager"]["spec"]["holderIdentity"] not in ("", holder)
            ),
        )
        holders = [
            each["spec"].get("holderIdentity")
            for _, each in leases.versions
            if each["metadata"]["name"] == "kruise-probe-manager"
        ]
    probed.exec("game", "touch /tmp/idle")

    until_condition(probed, "True")
    assert not all(holders), "the lease was released, not waited for"


def lease_holder(system: Kubectl) -> str:
    holder: str = system.get("lease", "kruise-probe-manager")["spec"]["holderIdentity"]
    return holder


def test_a_daemon_that_is_replaced_shows_nothing(system: Kubectl, probed: Kubectl) -> None:
    with probed.watch("pods") as pods:
        # The kubelet's last write may come after the first result.
        pods.until(
            "the pod is Ready",
            lambda newest: "game" in newest and status_of(newest["game"], "Ready") == "True",
        )
        before = len(pods.versions)
        system.run("rollout", "restart", "daemonset/kruise-probe-daemon")
        system.run(
            "rollout", "status", "daemonset/kruise-probe-daemon", "--timeout=180s", timeout=200
        )
        assert [each for _, each in pods.versions[before:]] == []

        was = status_of(pods.newest["game"], CONDITION)
        probed.exec("game", "rm /tmp/idle" if was == "True" else "touch /tmp/idle")
        pods.until(
            "the new daemon's result", lambda newest: status_of(newest["game"], CONDITION) != was
        )

    assert {status_of(each, CONDITION) for _, each in pods.versions} == {"True", "False"}


def test_the_workloads_run_without_root_or_capabilities_where_they_can(system: Kubectl) -> None:
    (manager, *_) = system.items("pods", "-l", MANAGERS)

    identity = system.run("exec", manager["metadata"]["name"], "--", "cat", "/proc/self/status")

    fields = dict(line.split(":\t", 1) for line in identity.splitlines() if ":\t" in line)
    assert fields["Uid"].split() == ["65532"] * 4
    assert int(fields["CapEff"], 16) == 0
    assert fields["Seccomp"] == "2"
    assert fields["NoNewPrivs"] == "1"


@pytest.mark.with_webhook
def test_the_webhook_answers_through_its_service(admin: Kubectl, system: Kubectl) -> None:
    how = {**IDLE["probe"], "terminationGracePeriodSeconds": 5}
    marker = marker_object({**IDLE, "probe": how})
    with pytest.raises(KubectlError, match="terminationGracePeriodSeconds"):
        admin.run(
            "create",
            "--dry-run=server",
            "--warnings-as-errors",
            "--namespace=default",
            "-f",
            "-",
            stdin=json.dumps(marker),
        )
