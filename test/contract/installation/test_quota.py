"""The ResourceQuota of docs/multi-tenancy.md limits the markers of a namespace, on a real API server."""

import pytest
import yaml
from contract.account import wait_until
from support.hollow import marker_object
from support.kubectl import Kubectl, KubectlError
from support.pages import block


def test_markers_beyond_the_quota_are_refused(admin: Kubectl) -> None:
    quota = yaml.safe_load(block("multi-tenancy.md", "Quotas").text)
    (key,) = quota["spec"]["hard"]
    quota["spec"]["hard"][key] = "2"
    admin.install_crds()
    with admin.new_namespace() as team:

        def is_counted() -> bool:
            status = team.get("resourcequota", "podprobemarkers").get("status", {})
            return bool(status.get("hard"))

        team.apply(quota)
        wait_until("the quota has a status", is_counted)
        team.apply(
            marker_object(name="first"),
            marker_object(name="second"),
        )
        with pytest.raises(KubectlError, match="exceeded quota: podprobemarkers"):
            team.apply(marker_object(name="third"))
