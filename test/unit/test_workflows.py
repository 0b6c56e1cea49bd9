"""The workflows run scripts and lanes that exist, with pinned images. `hack/lint-workflows` checks the rest."""

import os
import re

from support.pages import ROOT

TEXTS = [path.read_text() for path in (ROOT / ".github/workflows").glob("*.yaml")]
SCRIPTS = set(re.findall(r"(?<![\w/])hack/(?!lib/)[\w/.-]+\w", "\n".join(TEXTS)))
PINNED = re.compile(r"[\w/]+:[\w.-]+@sha256:[0-9a-f]{64}")


def test_every_script_of_a_workflow_can_be_run() -> None:
    assert {"hack/test", "hack/flaky", "hack/e2e-installed", "hack/kind-up"} <= SCRIPTS
    assert not [name for name in SCRIPTS if not os.access(ROOT / name, os.X_OK)]


def test_the_workflows_run_every_lane() -> None:
    (lanes,) = re.findall(r"^all_lanes=\((.*?)\)", (ROOT / "hack/test").read_text(), re.MULTILINE)
    words = set(re.findall(r"\w+", "\n".join(TEXTS)))
    assert set(lanes.split()) <= words


def test_images_are_pinned_by_digest() -> None:
    images = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    images += re.findall(
        r"^busybox_image=(.*)", (ROOT / "hack/lib/kind.sh").read_text(), re.MULTILINE
    )
    images += re.findall(r"\bnode: (kindest\S+)", "\n".join(TEXTS))
    assert len(images) == 5
    assert not [image for image in images if not PINNED.fullmatch(image)]
