"""What is installed, on a real kube-apiserver: the cluster of the kubeconfig KRUISE_PROBE_CONTRACT_KUBECONFIG."""

import os

import pytest
from support.kubectl import Kubectl

KUBECONFIG_VARIABLE = "KRUISE_PROBE_CONTRACT_KUBECONFIG"


@pytest.fixture(scope="session", params=["real"])
def admin() -> Kubectl:
    kubeconfig = os.environ.get(KUBECONFIG_VARIABLE)
    if not kubeconfig:
        pytest.skip(f"no real API server: {KUBECONFIG_VARIABLE} is not set")
    return Kubectl(kubeconfig)
