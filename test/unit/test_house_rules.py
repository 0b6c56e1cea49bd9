"""Rules of this house that no linter knows; each failure says what to do."""

import re
import subprocess
from pathlib import Path

from support.cases import cases
from support.pages import ROOT
from support.shell import python

GENERATED = "_pb"
PACKAGES = ("kruise_probe/*.py", "playground/kruise_probe_playground/*.py")


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [
        path
        for path in (ROOT / name for name in listed.stdout.splitlines())
        if path.is_file() and GENERATED not in path.parts
    ]


def lines_with(pattern: str, paths: list[Path]) -> list[str]:
    wanted = re.compile(pattern)
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if wanted.search(line)
    ]


def test_no_module_is_longer_than_600_lines() -> None:
    long = [
        str(path.relative_to(ROOT))
        for path in tracked(*PACKAGES)
        if len(path.read_text().splitlines()) > 600
    ]

    assert not long, f"cut along concepts: {long}"


def test_the_queue_protocol_is_implemented_once() -> None:
    """A worker that calls get, done and forget itself will one day call them on the wrong queue."""
    elsewhere = [
        line
        for line in lines_with(r"queue\w*\.(get|get_with_priority|done)\(", tracked(*PACKAGES))
        if not line.startswith(("kruise_probe/workqueue/", "kruise_probe/runtime/recorder.py"))
    ]

    assert not elsewhere, "use workqueue.controller.Controller"


def test_only_keys_know_how_a_probe_name_is_written() -> None:
    elsewhere = [
        line
        for line in lines_with(r"""(split|partition)\(["']#["']""", tracked(*PACKAGES))
        if not line.startswith("kruise_probe/api/names.py")
    ]

    assert not elsewhere, "use ProbeName"


def test_unit_tests_use_fakes_and_never_mocks() -> None:
    assert not lines_with(r"unittest\.mock|monkeypatch\.setattr\(time", tracked("test/unit/*.py"))


def test_no_package_is_called_what_says_nothing() -> None:
    names = {path.stem for path in tracked(*PACKAGES)}

    assert not names & {"util", "utils", "common", "misc", "helpers"}


@cases(
    "imports more",
    daemon=("import kruise_probe.cli.daemon", {"re2"}),
    manager_with_webhook=(
        "import kruise_probe.cli.manager; import kruise_probe.webhook.server",
        set(),
    ),
)
def test_manager_and_daemon_import_no_library_of_others(imports: str, more: set[str]) -> None:
    """aiohttp costs each process 8 MB; RE2, which only the manager needs, 3 MB."""
    banned = {"aiohttp", "yarl", "multidict", "kruise_probe_playground"} | more
    program = f"import sys; {imports}; print({banned} & sys.modules.keys())"
    assert python("-c", program, cwd=ROOT).stdout == "set()\n"
