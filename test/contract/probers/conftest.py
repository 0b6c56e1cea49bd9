"""The kubelet's own probers."""

import shutil
from collections.abc import Iterator

import pytest
from contract.probers.real_kubelet import Kubelet, built_kubelet


@pytest.fixture(scope="session")
def kubelet(real_kubeconfig: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubelet]:
    """Built in the lane with the real cluster only, because that has what the build needs."""
    if not shutil.which("go"):
        pytest.skip("kubelet's prober is built by Go")
    started = built_kubelet(tmp_path_factory.mktemp("kubelet"))
    yield started
    started.end()
