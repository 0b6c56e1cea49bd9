"""The images that Docker and hack/image build: their user, and the source of their packages."""

import re

from support.pages import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
SCRIPT = (ROOT / "hack" / "image").read_text()


def test_both_images_run_as_the_same_user_who_is_not_root() -> None:
    (user,) = re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)
    assert re.findall(r"--user (\S+)", SCRIPT) == [user]
    assert not user.startswith(("0", "root"))


def test_every_package_is_pinned_by_hash() -> None:
    lines = re.findall(r"pip install [^\n]*", DOCKERFILE)
    assert lines
    for line in lines:
        assert "--require-hashes" in line or "--no-deps" in line
    assert not re.search(r"\b(curl|wget|ADD|apt-get)\b", DOCKERFILE)


def test_the_image_contains_nothing_of_the_playground() -> None:
    context = (ROOT / ".dockerignore").read_text()
    assert context.startswith("*\n"), "everything is left out that is not listed"
    assert "playground" not in DOCKERFILE + SCRIPT + context
