"""Metrics that need authorisation, with the roles that are installed, tokens of service accounts, and a real API server."""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support import programs
from support.fake_runtime import ScriptedRuntime
from support.kubectl import Kubectl
from support.programs import Program
from support.real_node import apart, kubeconfig_of, token_of
from support.wire import Json, typed

from kruise_probe.api.names import LEADER_ELECTION_ID
from kruise_probe.api.times import format_micro_time, utc_now
from kruise_probe.manifests import objects_in
from kruise_probe.manifests.install import DAEMON, MANAGER

PROMETHEUS = "prometheus"


def held_lease(namespace: str) -> Json:
    """With it no manager of the namespace leads: a leader would delete the NodePodProbes of the tests beside it."""
    return typed(
        "Lease",
        metadata={"name": LEADER_ELECTION_ID, "namespace": namespace},
        spec={
            "holderIdentity": "nobody",
            "leaseDurationSeconds": 3600,
            "renewTime": format_micro_time(utc_now()),
        },
    )


@pytest.fixture(scope="module")
def namespace(admin: Kubectl) -> Iterator[str]:
    unique = uuid.uuid4().hex[:8]
    name = f"contract-{unique}"
    roles = [
        each
        for file in ("manager_rbac", "daemon_rbac", "metrics_rbac")
        for each in apart(objects_in(file, name), unique)
    ]
    admin.install_crds()
    with admin.applied(typed("Namespace", metadata={"name": name}), *roles, held_lease(name)):
        admin.run("create", "serviceaccount", PROMETHEUS, "--namespace", name)
        binding, account = f"{PROMETHEUS}-{unique}", f"--serviceaccount={name}:{PROMETHEUS}"
        reader = f"--clusterrole=kruise-probe-metrics-reader-{unique}"
        admin.run("create", "clusterrolebinding", binding, reader, account)
        yield name
        admin.run("delete", "clusterrolebinding", binding)


@pytest.fixture(params=[MANAGER, DAEMON])
async def scraped(
    request: pytest.FixtureRequest, admin: Kubectl, namespace: str, tmp_path: Path
) -> AsyncIterator[Program]:
    kubeconfig = Path(kubeconfig_of(admin, request.param, tmp_path, namespace=namespace))
    secure = ("--metrics-secure", f"--system-namespace={namespace}")
    if request.param == MANAGER:
        running = programs.running("manager", kubeconfig, tmp_path, *secure)
    else:
        runtime = ScriptedRuntime()
        running = programs.running_daemon(kubeconfig, tmp_path, "no-such-node", runtime, *secure)
    async with running as program:
        await program.ready()
        yield program


async def test_only_an_account_with_the_readers_role_gets_metrics(
    scraped: Program, admin: Kubectl, namespace: str
) -> None:
    status, text = await scraped.get("metrics", token_of(admin, PROMETHEUS, namespace))
    assert status == 200, text
    assert "process_resident_memory_bytes" in text
    for account in (DAEMON, MANAGER, "default"):
        status, text = await scraped.get("metrics", token_of(admin, account, namespace))
        assert status == 403
        assert f'user "system:serviceaccount:{namespace}:{account}" cannot get path' in text
    assert (await scraped.get("metrics"))[0] == 401
    assert (await scraped.get("metrics", "no-token"))[0] == 401
    assert await scraped.is_healthy()


async def test_a_token_ends_with_its_account(
    scraped: Program, admin: Kubectl, namespace: str
) -> None:
    """A new decision is made for each token, and none outlives its cache; a deleted account has none."""
    name = f"gone-{uuid.uuid4().hex[:8]}"
    admin.run("create", "serviceaccount", name, "--namespace", namespace)
    token = token_of(admin, name, namespace)
    admin.run("delete", "serviceaccount", name, "--namespace", namespace)

    assert (await scraped.get("metrics", token))[0] == 401
