"""`hack/release --dry-run` makes every file of a release; the wheels and the plugin can be installed and run."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.kubeconfig import kubeconfig
from support.pages import ROOT

VERSION = "99.98.97"
PYENV = sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3"))

pytestmark = pytest.mark.timeout(900)


def run(*command: str | Path, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**kept, "PATH": path},
    )


def ran(*command: str | Path) -> str:
    done = run(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pythons() -> list[str]:
    """The oldest and the newest Python of this machine that the project supports."""
    code = "import sys, venv, ensurepip; print(sys.version_info[1])"
    by_minor = dict[int, str]()
    for name in [
        sys.executable,
        *map(str, PYENV),
        *(f"python3.{minor}" for minor in range(11, 16)),
    ]:
        program = shutil.which(name)
        if program is None:
            continue
        done = run(program, "-c", code)
        if done.returncode == 0 and int(done.stdout) >= 11:
            by_minor.setdefault(int(done.stdout), program)
    oldest = min(by_minor)
    newest = max(by_minor)
    return [by_minor[minor] for minor in sorted({oldest, newest})]


def install(environment: Path, pins: str, *packages: str | Path) -> None:
    """Install packages at the pinned versions, without hashes: pip would also require hashes of our own wheels."""
    pattern = r"^[a-z][^ =]*==[^ \\]*(?: ;[^\\]*)?"
    found = re.findall(pattern, (ROOT / pins).read_text(), re.MULTILINE)
    versions = environment / f"versions-of-{Path(pins).name}"
    versions.write_text("\n".join(found))
    command = (environment / "bin/python", "-m", "pip", "install", "--quiet", "--no-compile")
    ran(*command, "--constraint", versions, *packages)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release") / "files"
    said = ran(ROOT / "hack/release", "--dry-run", "--quick", VERSION, folder)
    assert "verified: checksums, bill of materials, versions" in said
    assert f"ghcr.io/kruise-probe/kruise-probe:{VERSION}" in said
    return folder


def test_every_file_of_a_release_is_made(files: Path) -> None:
    names = {file.name.replace(VERSION, "V") for file in files.iterdir()}
    plugins = {name for name in names if name.startswith("kubectl-kruise_probe-")}

    assert len(plugins) == 1
    assert names - plugins == {
        "kruise_probe-V-py3-none-any.whl",
        "kruise_probe-V.tar.gz",
        "kruise_probe_playground-V-py3-none-any.whl",
        "kruise_probe_playground-V.tar.gz",
        "kruise-probe-chart-V.tgz",
        "kruise-probe-V.cdx.json",
        "kruise-probe.yaml",
        "install.yaml",
        "crds.yaml",
        "release-notes.md",
        "SHA256SUMS",
    }


def test_a_wheel_contains_one_package(files: Path) -> None:
    for wheel in files.glob("*.whl"):
        package = wheel.name.partition("-")[0]
        names = zipfile.ZipFile(wheel).namelist()
        tops = {name.partition("/")[0] for name in names}
        assert tops == {package, f"{package}-{VERSION}.dist-info"}


def test_the_bill_of_materials_lists_what_the_wheels_require(files: Path) -> None:
    bill = json.loads((files / f"kruise-probe-{VERSION}.cdx.json").read_text())
    versions = {component["name"]: component["version"] for component in bill["components"]}
    (own,) = (
        dependency
        for dependency in bill["dependencies"]
        if dependency["ref"].startswith("kruise-probe==")
    )

    assert versions["kruise-probe"] == versions["kruise-probe-playground"] == VERSION
    assert {"click", "msgspec"} <= versions.keys()
    assert versions.keys().isdisjoint({"pip", "hatchling", "pytest"})
    assert any(ref.startswith("msgspec==") for ref in own["dependsOn"])


@pytest.mark.parametrize("python", pythons())
def test_the_wheels_run_in_an_empty_environment(files: Path, tmp_path: Path, python: str) -> None:
    ran(python, "-m", "venv", tmp_path)
    install(tmp_path, "requirements/constraints.txt", *files.glob("*.whl"))
    command = tmp_path / "bin/kruise-probe"

    assert f"kruise-probe {VERSION} " in ran(command, "--version")
    assert "manager" in ran(command, "--help")
    assert ran(command, "manifests") == (files / "install.yaml").read_text()
    *_, report = ran(command, "playground", "--check", "--check-timeout=120s").splitlines()
    assert json.loads(report)


def test_the_kubectl_plugin_runs_without_an_installation(files: Path, tmp_path: Path) -> None:
    (archive,) = files.glob("kubectl-kruise_probe-*.tar.gz")
    store = tmp_path / "store"
    store.mkdir()
    ran("tar", "-xzf", archive, "-C", store)
    plugin = tmp_path / "kubectl-kruise_probe"
    plugin.symlink_to(store / "kubectl-kruise_probe")  # as krew does

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run(plugin, *arguments, path=f"{sys.base_prefix}/bin:/usr/bin:/bin")

    assert f"kruise-probe {VERSION} " in call("--version").stdout
    assert "PodProbeMarker" in call("manifests", "--crds-only").stdout
    config = kubeconfig(tmp_path / "config", cluster={"server": "http://127.0.0.1:1"}, user={})
    done = call("status", "--kubeconfig", config)
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
