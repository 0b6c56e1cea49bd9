"""The ResourceQuota of docs/multi-tenancy.md limits the markers of a namespace, on a real API server."""

import time
from collections.abc import Iterator

import pytest
import yaml
from support.hollow import marker_object
from support.kubectl import Kubectl, KubectlError
from support.pages import block


@pytest.fixture
def team(admin: Kubectl) -> Iterator[Kubectl]:
    admin.install_crds()
    with admin.new_namespace() as kubectl:
        yield kubectl


def test_markers_beyond_the_quota_are_refused(team: Kubectl) -> None:
    quota = yaml.safe_load(block("multi-tenancy.md", "Quotas").text)
    (key,) = quota["spec"]["hard"]
    quota["spec"]["hard"][key] = "2"
    team.apply(quota)
    give_up = time.monotonic() + 60
    while team.get("resourcequota", "podprobemarkers").get("status", {}).get("hard", {}) == {}:
        assert time.monotonic() < give_up, "the quota has no status"
    team.apply(marker_object(name="first"), marker_object(name="second"))
    with pytest.raises(KubectlError, match="exceeded quota: podprobemarkers"):
        team.apply(marker_object(name="third"))
