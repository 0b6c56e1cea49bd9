"""The real API server of the contract: the cluster of the kubeconfig that KRUISE_PROBE_CONTRACT_KUBECONFIG names."""

import json
import os
from pathlib import Path

import pytest
from contract.contract_api import ServerAddress, target_of
from support.kubectl import Kubectl

KUBECONFIG_VARIABLE = "KRUISE_PROBE_CONTRACT_KUBECONFIG"


@pytest.fixture(scope="session")
def real_kubeconfig() -> str:
    path = os.environ.get(KUBECONFIG_VARIABLE)
    if not path:
        pytest.skip(f"no real API server: {KUBECONFIG_VARIABLE} is not set")
    return path


@pytest.fixture(scope="session")
def real_server(real_kubeconfig: str) -> ServerAddress:
    return target_of(Path(real_kubeconfig))


@pytest.fixture(scope="session")
def admin(real_kubeconfig: str) -> Kubectl:
    return Kubectl(real_kubeconfig)


@pytest.fixture(scope="session")
def real_minor_version(admin: Kubectl) -> int:
    versions = json.loads(admin.run("version", "-o", "json"))
    return int(versions["serverVersion"]["minor"].rstrip("+"))
