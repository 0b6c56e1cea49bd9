"""`hack/release --dry-run` makes every file of a release, and what it makes can be installed and run."""

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
        [str(each) for each in command],
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
    found = dict[tuple[int, int], str]()
    for each in [
        sys.executable,
        *map(str, PYENV),
        *(f"python3.{minor}" for minor in range(11, 16)),
    ]:
        program = shutil.which(each)
        code = "import sys, venv, ensurepip; print(*sys.version_info[:2])"
        done = run(program, "-c", code) if program else None
        if done is not None and done.returncode == 0:
            major, minor = map(int, done.stdout.split())
            found.setdefault((major, minor), str(program))
    supported = sorted(each for each in found if each >= (3, 11))
    return [found[each] for each in sorted({supported[0], supported[-1]})]


def install(environment: Path, pins: str, *packages: str | Path) -> None:
    """Install packages at the pinned versions; without hashes, as pip would want those of our own wheels too."""
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
    names = {each.name.replace(VERSION, "V") for each in files.iterdir()}
    plugins = {each for each in names if each.startswith("kubectl-kruise_probe-")}

    assert len(plugins) == 1
    playground = {
        "kruise_probe_playground-V-py3-none-any.whl",
        "kruise_probe_playground-V.tar.gz",
    }
    assert names - plugins - playground == {
        "kruise_probe-V-py3-none-any.whl",
        "kruise_probe-V.tar.gz",
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
        tops = {each.partition("/")[0] for each in zipfile.ZipFile(wheel).namelist()}
        assert tops == {package, f"{package}-{VERSION}.dist-info"}


def test_the_bill_of_materials_lists_what_the_wheels_require(files: Path) -> None:
    bill = json.loads((files / f"kruise-probe-{VERSION}.cdx.json").read_text())
    versions = {each["name"]: each["version"] for each in bill["components"]}
    (own,) = (each for each in bill["dependencies"] if each["ref"].startswith("kruise-probe=="))

    assert versions["kruise-probe"] == versions["kruise-probe-playground"] == VERSION
    assert {"click", "msgspec"} <= versions.keys()
    assert not versions.keys() & {"pip", "hatchling", "pytest"}
    assert any(each.startswith("msgspec==") for each in own["dependsOn"])


@pytest.mark.parametrize("python", pythons())
def test_the_wheels_run_in_an_empty_environment(files: Path, tmp_path: Path, python: str) -> None:
    ran(python, "-m", "venv", tmp_path)
    install(tmp_path, "requirements/constraints.txt", *files.glob("*.whl"))
    command = tmp_path / "bin/kruise-probe"

    assert f"kruise-probe {VERSION} " in ran(command, "--version")
    assert "manager" in ran(command, "--help")
    assert ran(command, "manifests") == (files / "install.yaml").read_text()
    assert json.loads(
        ran(command, "playground", "--check", "--check-timeout=120s").splitlines()[-1]
    )


def test_the_kubectl_plugin_runs_without_an_installation(files: Path, tmp_path: Path) -> None:
    (archive,) = files.glob("kubectl-kruise_probe-*.tar.gz")
    (tmp_path / "store").mkdir()
    ran("tar", "-xzf", archive, "-C", tmp_path / "store")
    plugin = tmp_path / "kubectl-kruise_probe"
    plugin.symlink_to(tmp_path / "store/kubectl-kruise_probe")  # as krew does
    path = f"{Path(sys.base_prefix) / 'bin'}:/usr/bin:/bin"

    assert f"kruise-probe {VERSION} " in run(plugin, "--version", path=path).stdout
    assert "PodProbeMarker" in run(plugin, "manifests", "--crds-only", path=path).stdout
    config = kubeconfig(tmp_path / "config", cluster={"server": "http://127.0.0.1:1"}, user={})
    done = run(plugin, "status", "--kubeconfig", config, path=path)
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
