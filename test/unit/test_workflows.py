"""The workflows run scripts and lanes that exist, with pinned images. `hack/lint-workflows` checks the rest."""

import os
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from support.pages import ROOT

WORKFLOWS = {
    each.stem: yaml.safe_load(each.read_text())
    for each in (ROOT / ".github/workflows").glob("*.yaml")
}
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OLDEST_KUBERNETES = "1.30"


def steps() -> Iterator[dict[str, Any]]:
    for job in jobs():
        yield from job["steps"]


def jobs() -> Iterator[dict[str, Any]]:
    for workflow in WORKFLOWS.values():
        yield from workflow["jobs"].values()


def scripts() -> Iterator[str]:
    return (each["run"] for each in steps() if "run" in each)


def test_every_script_is_there_and_runs() -> None:
    named = {
        name for script in scripts() for name in re.findall(r"(?<![\w/])hack/[\w/.-]+", script)
    }

    assert {"hack/test", "hack/flaky", "hack/e2e-installed", "hack/kind-up"} <= named
    assert not {name for name in named if not os.access(ROOT / name, os.X_OK)}


def test_the_workflows_run_every_lane_of_hack_test() -> None:
    (listed,) = re.findall(r"^all_lanes=\((.*?)\)", (ROOT / "hack/test").read_text(), re.MULTILINE)
    tests = WORKFLOWS["tests"]["jobs"]
    named = {
        lane
        for script in scripts()
        for line in re.findall(r"hack/test ([a-z ]+)", script)
        for lane in line.split()
    }
    repeated = set(WORKFLOWS["nightly"]["jobs"]["flaky"]["strategy"]["matrix"]["lane"])

    assert named | set(tests["node"]["strategy"]["matrix"]["lane"]) == set(listed.split())
    assert repeated <= set(listed.split())


def test_no_workflow_allows_skipped_tests() -> None:
    """Runners set CI=true, and then hack/test and pytest fail for a skipped test."""
    texts = [each.read_text() for each in (ROOT / ".github/workflows").glob("*.yaml")]

    assert not [each for each in texts if re.search(r"\bCI(:|=)(?! ?true)", each)]


@pytest.mark.parametrize("name", sorted(WORKFLOWS))
def test_runs_are_grouped_and_jobs_end_in_time(name: str) -> None:
    workflow = WORKFLOWS[name]

    assert workflow["concurrency"]["group"]
    assert all(each["timeout-minutes"] for each in workflow["jobs"].values())


def test_images_are_pinned_by_digest() -> None:
    nodes = [
        each["node"] for each in WORKFLOWS["tests"]["jobs"]["kind"]["strategy"]["matrix"]["include"]
    ]
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    pods = re.findall(r"^busybox_image=(.*)", (ROOT / "hack/lib/kind.sh").read_text(), re.MULTILINE)

    assert len(nodes) == 2
    assert len(bases) == 2
    assert len(pods) == 1
    pinned = re.compile(r"[\w/]+:[\w.-]+@sha256:[0-9a-f]{64}")
    assert not [each for each in [*nodes, *bases, *pods] if not pinned.fullmatch(each)]


def test_the_pythons_are_those_that_the_project_promises() -> None:
    tried, patches = (
        WORKFLOWS[each]["jobs"]["python"]["strategy"]["matrix"]["python"]
        for each in ("tests", "nightly")
    )
    prefix = "Programming Language :: Python :: "
    promised = [
        each.removeprefix(prefix)
        for each in PROJECT["classifiers"]
        if each.startswith(f"{prefix}3.")
    ]

    assert tried == ["3.11", "3.12", "3.13", "3.14"]
    assert [each.rpartition(".")[0] for each in patches] == tried
    assert promised in ([], tried)
    assert PROJECT["requires-python"] == f">={tried[0]}"


def test_the_oldest_and_the_newest_kubernetes_are_tried_in_both_ways() -> None:
    matrix = WORKFLOWS["tests"]["jobs"]["kind"]["strategy"]["matrix"]
    minors = matrix["kubernetes"]
    nodes = {each["kubernetes"]: each["node"] for each in matrix["include"]}

    assert matrix["install"] == ["kustomize", "helm"]
    assert list(nodes) == minors
    assert all(f":v{minor}." in nodes[minor] for minor in minors)
    assert minors[0] == OLDEST_KUBERNETES
    assert int(minors[-1].partition(".")[2]) >= int(_control_plane().partition(".")[2])


def _control_plane() -> str:
    text = (ROOT / "hack/lib/binaries.sh").read_text()
    found = re.search(r"kubernetes_versions=\((1\.\d+)\.", text)
    assert found
    return found[1]
