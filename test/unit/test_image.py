"""The image that Docker makes and the one that hack/image makes hold the same, and neither runs as root."""

import re

from support.pages import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
SCRIPT = (ROOT / "hack" / "image").read_text()


def left_out(text: str) -> list[str]:
    (line,) = re.findall(r"&& rm -rf (bin [^\\)]*)", text)
    return sorted(line.split())


def test_both_leave_the_same_out() -> None:
    assert left_out(DOCKERFILE) == left_out(SCRIPT)


def test_both_run_as_the_same_user_who_is_not_root() -> None:
    (said,) = re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)
    (written,) = re.findall(r"--user (\S+)", SCRIPT)

    assert said == written
    assert not said.startswith(("0", "root"))


def test_both_have_the_same_environment() -> None:
    (line,) = re.findall(r"^ENV (.*)$", DOCKERFILE, re.MULTILINE)
    said = {each.partition("=")[0] for each in line.split()}
    written = set(re.findall(r"--env \"?(\w+)=", SCRIPT))

    assert said == written


def test_nothing_comes_without_a_hash_and_nothing_from_elsewhere() -> None:
    installs = re.findall(r"pip install [^\n]*", DOCKERFILE)

    assert all("--require-hashes" in each or "--no-deps" in each for each in installs)
    assert not re.search(r"\b(curl|wget|ADD|apt-get)\b", DOCKERFILE)


def test_nothing_of_the_playground_is_in_the_image() -> None:
    context = (ROOT / ".dockerignore").read_text()

    assert context.startswith("*\n"), "everything is left out that is not listed"
    assert "playground" not in DOCKERFILE + SCRIPT + context
