"""kruise-probe as it is installed, by hack/e2e-installed: what runs, and what its tokens may not do."""

import json
from collections.abc import Callable, Iterator

import pytest
from support.hollow import marker_object, probe
from support.kubectl import Kubectl, KubectlError
from support.real_node import SYSTEM, busybox_pod
from support.target import status_of
from support.wire import Json

MANAGERS = "app.kubernetes.io/component=manager"
LEASE = "kruise-probe-manager"
DAEMONS = "daemonset/kruise-probe-daemon"
CONDITION = "install.example.com/idle"
POD = busybox_pod(
    "game",
    "sleep",
    "100000",
    labels={"app": "install"},
)
IDLE = probe(
    "idle",
    probe={
        "exec": {"command": ["test", "-f", "/tmp/idle"]},
        "timeoutSeconds": 20,
    },
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


def game_has(kind: str, status: str) -> Callable[[dict[str, Json]], bool]:
    return lambda newest: "game" in newest and status_of(newest["game"], kind) == status


def until_condition(namespace: Kubectl, status: str) -> None:
    with namespace.watch("pods") as pods:
        pods.until(f"the condition is {status}", game_has(CONDITION, status))


def test_the_other_manager_takes_over(system: Kubectl, probed: Kubectl) -> None:
    holder = system.get("lease", LEASE)["spec"]["holderIdentity"]
    pod = holder.rpartition("_")[0].rpartition("_")[0]

    def another_leads(newest: dict[str, Json]) -> bool:
        return LEASE in newest and newest[LEASE]["spec"]["holderIdentity"] not in ("", holder)

    with system.watch("leases") as leases:
        leases.until("the lease is seen", lambda newest: LEASE in newest)
        system.run("delete", "pod", pod, "--wait=false")
        leases.until("another manager leads", another_leads)
        holders = [
            lease["spec"].get("holderIdentity")
            for _, lease in leases.versions
            if lease["metadata"]["name"] == LEASE
        ]
    probed.exec("game", "touch /tmp/idle")

    until_condition(probed, "True")
    assert not all(holders), "the lease was released, not waited for"


def test_a_daemon_that_is_replaced_shows_nothing(system: Kubectl, probed: Kubectl) -> None:
    with probed.watch("pods") as pods:
        # The kubelet's last write may come after the first result.
        pods.until("the pod is Ready", game_has("Ready", "True"))
        before = len(pods.versions)
        system.run("rollout", "restart", DAEMONS)
        system.run("rollout", "status", DAEMONS, "--timeout=180s", timeout=200)
        assert pods.versions[before:] == []

        if status_of(pods.newest["game"], CONDITION) == "True":
            probed.exec("game", "rm /tmp/idle")
            pods.until("the new daemon's result", game_has(CONDITION, "False"))
        else:
            probed.exec("game", "touch /tmp/idle")
            pods.until("the new daemon's result", game_has(CONDITION, "True"))

    assert {status_of(pod, CONDITION) for _, pod in pods.versions} == {"True", "False"}


def test_the_workloads_run_without_root_or_capabilities_where_they_can(system: Kubectl) -> None:
    (manager, *_) = system.items("pods", "-l", MANAGERS)

    identity = system.run(
        "exec",
        manager["metadata"]["name"],
        "--",
        "cat",
        "/proc/self/status",
    )

    fields = dict(line.split(":\t", 1) for line in identity.splitlines() if ":\t" in line)
    assert fields["Uid"].split() == ["65532"] * 4
    assert int(fields["CapEff"], 16) == 0
    assert fields["Seccomp"] == "2"
    assert fields["NoNewPrivs"] == "1"


@pytest.mark.with_webhook
def test_the_webhook_answers_through_its_service(admin: Kubectl, system: Kubectl) -> None:
    how = {**IDLE["probe"], "terminationGracePeriodSeconds": 5}
    marker = json.dumps(marker_object({**IDLE, "probe": how}))
    flags = ("--dry-run=server", "--warnings-as-errors", "--namespace=default", "-f", "-")
    with pytest.raises(KubectlError, match="terminationGracePeriodSeconds"):
        admin.run("create", *flags, stdin=marker)
