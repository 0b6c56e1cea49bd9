"""The workflows run scripts and lanes that exist, with pinned images. `hack/lint-workflows` checks the rest."""

import os
import re

from support.pages import ROOT

WORKFLOWS = "\n".join(file.read_text() for file in (ROOT / ".github/workflows").glob("*.yaml"))
SCRIPTS = set(re.findall(r"(?<![\w/])hack/(?!lib/)[\w/.-]+\w", WORKFLOWS))


def found_in(path: str, pattern: str) -> list[str]:
    """All matches of the group of a pattern in a file of the repository."""
    text = (ROOT / path).read_text()
    return re.findall(pattern, text, re.MULTILINE)


def test_every_script_of_a_workflow_can_be_run() -> None:
    assert {"hack/test", "hack/flaky", "hack/e2e-installed", "hack/kind-up"} <= SCRIPTS
    for name in SCRIPTS:
        assert os.access(ROOT / name, os.X_OK), name


def test_the_workflows_run_every_lane() -> None:
    (lanes,) = found_in("hack/test", r"^all_lanes=\((.*?)\)")
    words = set(re.findall(r"\w+", WORKFLOWS))
    assert set(lanes.split()) <= words


def test_images_are_pinned_by_digest() -> None:
    images = [
        *found_in("Dockerfile", r"^FROM (\S+)"),
        *found_in("hack/lib/kind.sh", r"^busybox_image=(.*)"),
        *re.findall(r"\bnode: (kindest\S+)", WORKFLOWS),
    ]
    assert len(images) == 5
    for image in images:
        assert re.fullmatch(r"[\w/]+:[\w.-]+@sha256:[0-9a-f]{64}", image)
