"""The pytest plugin: fixtures for the tests of a controller. pytest loads it when the playground is installed.

The server is imported by the first test that uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kruise_probe_playground.testing.definitions import DefinitionSource
    from kruise_probe_playground.testing.kube_api import KubeApi


@pytest.fixture
def kube_crds() -> Iterable[DefinitionSource]:
    """What `kube_api` serves besides the built-in kinds. Override it in a conftest.py or a module."""
    return ()


@pytest.fixture
def kube_api(kube_crds: Iterable[DefinitionSource]) -> Iterator[KubeApi]:
    """A new, empty API server for one test."""
    from kruise_probe_playground.testing.kube_api import KubeApi

    with KubeApi(kube_crds) as api:
        yield api


@pytest.fixture
def kubeconfig(kube_api: KubeApi, tmp_path: Path) -> Path:
    """The file of a kubeconfig for `kube_api`."""
    path = tmp_path / "kubeconfig"
    kube_api.write_kubeconfig(path)
    return path
