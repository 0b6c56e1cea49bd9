"""Metrics that need authorisation, with the roles that are installed, tokens of service accounts, and a real API server."""

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from contract.contract_api import named
from support import programs
from support.fake_runtime import ScriptedRuntime
from support.kubectl import Kubectl
from support.programs import Program
from support.real_node import apart, kubeconfig_of, token_of

from kruise_probe.api.names import LEADER_ELECTION_ID
from kruise_probe.api.times import format_micro_time, utc_now
from kruise_probe.manifests import objects_in
from kruise_probe.manifests.install import DAEMON, MANAGER

PROMETHEUS = "prometheus"


@pytest.fixture(scope="module")
def namespace(admin: Kubectl) -> Iterator[str]:
    unique = secrets.token_hex(4)
    name = f"contract-{unique}"
    # With it no manager leads: a leader would delete the NodePodProbes of the tests beside it.
    held_lease = named("Lease", LEADER_ELECTION_ID, namespace=name)
    held_lease["spec"] = {
        "holderIdentity": "nobody",
        "leaseDurationSeconds": 3600,
        "renewTime": format_micro_time(utc_now()),
    }
    admin.install_crds()
    with admin.applied(
        named("Namespace", name),
        *apart(objects_in("manager_rbac", name), unique),
        *apart(objects_in("daemon_rbac", name), unique),
        *apart(objects_in("metrics_rbac", name), unique),
        held_lease,
    ):
        admin.run("create", "serviceaccount", PROMETHEUS, "--namespace", name)
        binding = f"{PROMETHEUS}-{unique}"
        reader = f"--clusterrole=kruise-probe-metrics-reader-{unique}"
        account = f"--serviceaccount={name}:{PROMETHEUS}"
        admin.run("create", "clusterrolebinding", binding, reader, account)
        yield name
        admin.run("delete", "clusterrolebinding", binding)


@pytest.fixture(params=[MANAGER, DAEMON])
async def scraped(
    request: pytest.FixtureRequest, admin: Kubectl, namespace: str, tmp_path: Path
) -> AsyncIterator[Program]:
    path = kubeconfig_of(admin, request.param, tmp_path, namespace=namespace)
    kubeconfig = Path(path)
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
    name = f"gone-{secrets.token_hex(4)}"
    admin.run("create", "serviceaccount", name, "--namespace", namespace)
    token = token_of(admin, name, namespace)
    admin.run("delete", "serviceaccount", name, "--namespace", namespace)

    assert (await scraped.get("metrics", token))[0] == 401
