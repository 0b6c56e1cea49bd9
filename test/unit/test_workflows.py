"""The workflows run scripts and lanes that exist, with pinned images. `hack/lint-workflows` checks the rest."""

import os
import re
from collections.abc import Iterator
from typing import Any

import yaml
from support.pages import ROOT

WORKFLOWS = {
    each.stem: yaml.safe_load(each.read_text())
    for each in (ROOT / ".github/workflows").glob("*.yaml")
}
DOCKERFILE = (ROOT / "Dockerfile").read_text()


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
    texts = [path.read_text() for path in (ROOT / ".github/workflows").glob("*.yaml")]

    assert not [text for text in texts if re.search(r"\bCI(:|=)(?! ?true)", text)]


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
