"""The public workflows run what is there: scripts, lanes, versions. No linter of theirs is needed for that."""

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = {
    each.stem: yaml.safe_load(each.read_text())
    for each in (ROOT / ".github/workflows").glob("*.yaml")
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OLDEST_KUBERNETES = "1.30"


def steps() -> Iterator[dict[str, Any]]:
    for workflow in WORKFLOWS.values():
        for job in workflow["jobs"].values():
            yield from job["steps"]


def scripts() -> Iterator[str]:
    return (each["run"] for each in steps() if "run" in each)


def test_every_script_is_there_and_runs() -> None:
    named = {
        name for script in scripts() for name in re.findall(r"(?<![\w/])hack/[\w/.-]+", script)
    }

    assert {"hack/test", "hack/cluster", "hack/e2e-installed", "hack/kind-up"} <= named
    assert not {name for name in named if not os.access(ROOT / name, os.X_OK)}


def test_every_lane_is_one_of_hack_tests() -> None:
    (listed,) = re.findall(r"^all_lanes=\((.*)\)", (ROOT / "hack/test").read_text(), re.MULTILINE)
    wanted = {
        lane
        for script in scripts()
        for line in re.findall(r"hack/test (.*)", script)
        for lane in line.split()
    }
    repeated = set(WORKFLOWS["nightly"]["jobs"]["flaky"]["strategy"]["matrix"]["lane"])

    assert wanted
    assert wanted | repeated <= set(listed.split())


def test_every_action_names_its_version() -> None:
    used = [each["uses"] for each in steps() if "uses" in each]

    assert used
    assert not [each for each in used if not re.fullmatch(r"[\w.-]+/[\w./-]+@v\d+", each)]


def test_the_pythons_are_those_that_the_project_promises() -> None:
    tried = WORKFLOWS["tests"]["jobs"]["tests"]["strategy"]["matrix"]["python"]
    prefix = "Programming Language :: Python :: "
    promised = [
        each.removeprefix(prefix)
        for each in PROJECT["classifiers"]
        if each.startswith(f"{prefix}3.")
    ]

    assert tried == ["3.11", "3.12", "3.13", "3.14"]
    assert promised in ([], tried)
    assert PROJECT["requires-python"] == f">={tried[0]}"


def test_the_oldest_and_the_newest_kubernetes_are_tried_in_both_ways() -> None:
    matrix = WORKFLOWS["e2e"]["jobs"]["kind"]["strategy"]["matrix"]
    versions = [re.search(r":v(1\.\d+)\.\d+$", each) for each in matrix["node"]]
    minors = [each[1] for each in versions if each]

    assert matrix["install"] == ["kustomize", "helm"]
    assert minors[0] == OLDEST_KUBERNETES
    assert int(minors[-1].partition(".")[2]) >= int(_control_plane().partition(".")[2])


def _control_plane() -> str:
    text = (ROOT / "hack/controlplane/kubernetes/go.mod").read_text()
    found = re.search(r"k8s\.io/kubernetes v(1\.\d+)\.", text)
    assert found
    return found[1]


def test_the_kubeconfig_is_where_kind_up_writes_it() -> None:
    (kubeconfig,) = {
        each["env"]["KUBECONFIG"] for each in steps() if "KUBECONFIG" in each.get("env", {})
    }

    written = (ROOT / "hack/lib/kind.sh").read_text()
    assert "kind_kubeconfig=$cache/kind-$kind_name.kubeconfig" in written
    assert kubeconfig == "/home/runner/.cache/kruise-probe/kind-kruise-probe.kubeconfig"


@pytest.mark.parametrize("name", ["hack/controlplane/**", "hack/lib/helm.sh"])
def test_what_a_cache_depends_on_exists(name: str) -> None:
    keys = [each["with"]["key"] for each in steps() if "cache@" in each.get("uses", "")]

    assert any(f"'{name}'" in key for key in keys)
    assert list(ROOT.glob(name))


def test_the_image_is_for_both_kinds_of_machines() -> None:
    (build,) = [each for each in steps() if "build-push-action" in each.get("uses", "")]

    assert build["with"]["platforms"] == "linux/amd64,linux/arm64"
