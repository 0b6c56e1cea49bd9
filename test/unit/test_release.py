"""The steps of `hack/release`. `test/release` runs all of it."""

import hashlib
import importlib.util
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml
from support.pages import ROOT

from kruise_probe import __version__

spec = importlib.util.spec_from_file_location("release", ROOT / "hack/lib/release.py")
assert spec
assert spec.loader
release = importlib.util.module_from_spec(spec)  # hack/lib is no package
spec.loader.exec_module(release)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in {*dict(release.PLACES), "CHANGELOG.md"}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_every_file_has_the_same_version() -> None:
    assert set(release.versions(ROOT).values()) == {__version__}


def test_prepare_writes_the_version_everywhere_and_one_section_of_the_changelog(
    files: Path,
) -> None:
    release.prepare(files, "12.34.56")
    release.prepare(files, "12.34.56")

    release.check(files, "12.34.56")
    assert (files / "CHANGELOG.md").read_text().count("## 12.34.56 - ") == 1
    with pytest.raises(release.ReleaseError, match=r"run hack/release --prepare 12\.34\.57"):
        release.check(files, "12.34.57")


def test_notes_are_the_section_of_the_version_and_must_not_be_empty(files: Path) -> None:
    text = "## Unreleased\n\n- new\n\n## 1.2.3 - 2026-01-01\n\n- fixed\n\n## 1.2.2 - 2025-01-01\n\n"
    (files / "CHANGELOG.md").write_text(text)

    assert release.notes(files, "1.2.3") == "- fixed\n"
    with pytest.raises(release.ReleaseError, match="missing or empty"):
        release.notes(files, "1.2.2")


def test_the_plugin_has_compiled_modules_of_each_python_and_others_once(tmp_path: Path) -> None:
    modules = {"fast-1-cp3-cp3-linux": "fast.so", "pure-1-py3-none-any": "pure.py"}
    for python in ("3.11", "3.12"):
        folder = tmp_path / "wheels" / python
        folder.mkdir(parents=True)
        for name, module in modules.items():
            with zipfile.ZipFile(folder / f"{name}.whl", "w") as wheel:
                wheel.writestr(module, "text")
    licence = tmp_path / "LICENSE"
    licence.write_text("free")

    one = tmp_path / "one.tar.gz"
    two = tmp_path / "two.tar.gz"
    for archive in (one, two):
        release.plugin(tmp_path / "wheels", licence, archive)

    with tarfile.open(one) as tar:
        modes = {member.name: member.mode for member in tar.getmembers()}
    assert modes == {
        "kubectl-kruise_probe": 0o755,
        "LICENSE": 0o644,
        "lib/3.11/fast.so": 0o644,
        "lib/3.12/fast.so": 0o644,
        "lib/any/pure.py": 0o644,
    }
    assert one.read_bytes() == two.read_bytes()


def test_the_krew_manifest_has_each_platform_with_its_checksum(tmp_path: Path) -> None:
    mac = tmp_path / "kubectl-kruise_probe-v1.2.3-darwin-arm64.tar.gz"
    linux = tmp_path / "kubectl-kruise_probe-v1.2.3-linux-amd64.tar.gz"
    mac.write_bytes(b"abc")
    linux.write_bytes(b"abc")

    manifest = yaml.safe_load(release.krew("1.2.3", [linux, mac]))

    assert manifest["spec"]["version"] == "v1.2.3"
    of_mac, of_linux = manifest["spec"]["platforms"]
    assert of_mac["selector"]["matchLabels"] == {"os": "darwin", "arch": "arm64"}
    assert of_linux["selector"]["matchLabels"] == {"os": "linux", "arch": "amd64"}
    assert of_linux["sha256"] == hashlib.sha256(b"abc").hexdigest()
    assert of_linux["uri"].endswith(f"/v1.2.3/{linux.name}")
