"""The steps of `hack/release`. `test/release` runs all of it."""

import importlib.util
import json
import re
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from support.cases import cases
from support.pages import ROOT

from kruise_probe import __version__


def load(name: str) -> ModuleType:
    """Import a module of hack/lib, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"hack/lib/{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = load("release")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in {*(name for name, _ in release.PLACES), "CHANGELOG.md"}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_every_file_has_the_same_version() -> None:
    assert set(release.versions(ROOT).values()) == {__version__}


def test_each_distribution_has_the_licence_as_a_file() -> None:
    """The sdist of another folder would contain a link that leads nowhere."""
    licences = [*ROOT.glob("LICENSE"), *ROOT.glob("*/LICENSE")]

    assert licences
    assert not [path for path in licences if path.is_symlink()]
    assert len({path.read_text() for path in licences}) == 1


def test_no_manifest_uses_the_tag_latest() -> None:
    manifests = [*(ROOT / "config").rglob("*.yaml"), ROOT / "docs/commands.md"]

    assert not [path for path in manifests if ":latest" in path.read_text()]


def test_prepare_changes_every_place_and_nothing_else(files: Path) -> None:
    before = {name: (files / name).read_text() for name, _ in release.PLACES}

    release.prepare(files, "12.34.56")

    assert set(release.versions(files).values()) == {"12.34.56"}
    for name, text in before.items():
        assert (files / name).read_text().replace("12.34.56", __version__) == text


def test_prepare_starts_a_section_of_the_changelog_once(files: Path) -> None:
    release.prepare(files, "12.34.56")
    release.prepare(files, "12.34.56")

    text = (files / "CHANGELOG.md").read_text()
    assert re.search(r"## Unreleased\n\n## 12\.34\.56 - \d{4}-\d\d-\d\d\n\n\S", text)
    assert text.count("## 12.34.56") == 1


def test_a_tag_other_than_the_version_of_the_files_is_refused(files: Path) -> None:
    release.prepare(files, "12.34.56")
    release.check(files, "12.34.56")

    with pytest.raises(release.ReleaseError, match=r"run hack/release --prepare 12\.34\.57"):
        release.check(files, "12.34.57")


def test_a_release_without_notes_is_refused(files: Path) -> None:
    (files / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n")
    release.prepare(files, "12.34.56")

    with pytest.raises(release.ReleaseError, match="missing or empty"):
        release.check(files, "12.34.56")


def test_notes_are_the_section_of_the_version_only(files: Path) -> None:
    text = "## Unreleased\n\n- new\n\n## 1.2.3 - 2026-01-01\n\n- fixed\n\n## 1.2.2 - 2025-01-01\n\n- old\n"
    (files / "CHANGELOG.md").write_text(text)

    assert release.notes(files, "1.2.3") == "- fixed\n"


@pytest.mark.parametrize("wrong", ["v1.2.3", "1.2", "1.2.3rc1", "latest", "1.2.3+x"])
def test_a_version_is_three_numbers(
    wrong: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["release.py", "notes", str(ROOT), wrong])

    assert release.main() == 1
    assert "three numbers" in capsys.readouterr().err


def test_the_plugin_has_compiled_modules_of_each_python_and_others_once(tmp_path: Path) -> None:
    for python in ("3.11", "3.12"):
        tag = python.replace(".", "")
        make_wheel(
            tmp_path / f"wheels/{python}/fast-1-cp{tag}-cp{tag}-linux.whl", "fast.so", python
        )
        make_wheel(tmp_path / f"wheels/{python}/pure-1-py3-none-any.whl", "pure.py", "same")
    licence = tmp_path / "LICENSE"
    licence.write_text("free")

    for name in ("one.tar.gz", "two.tar.gz"):
        release.plugin(tmp_path / "wheels", licence, tmp_path / name)

    with tarfile.open(tmp_path / "one.tar.gz") as tar:
        modes = {each.name: each.mode for each in tar.getmembers()}
    assert modes == {
        "kubectl-kruise_probe": 0o755,
        "LICENSE": 0o644,
        "lib/3.11/fast.so": 0o644,
        "lib/3.12/fast.so": 0o644,
        "lib/any/pure.py": 0o644,
    }
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()


def make_wheel(path: Path, name: str, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(name, text)


def test_the_krew_manifest_has_each_platform_with_its_checksum(tmp_path: Path) -> None:
    archives = [
        tmp_path / f"kubectl-kruise_probe-v1.2.3-linux-{arch}.tar.gz" for arch in ("arm64", "amd64")
    ]
    for each in archives:
        each.write_bytes(b"abc")

    spec = yaml.safe_load(release.krew("1.2.3", archives))["spec"]

    assert spec["version"] == "v1.2.3"
    assert [each["selector"]["matchLabels"]["arch"] for each in spec["platforms"]] == [
        "amd64",
        "arm64",
    ]
    assert {each["sha256"] for each in spec["platforms"]} == {
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    }
    assert {each["uri"].rpartition("/")[2] for each in spec["platforms"]} == {
        each.name for each in archives
    }


@cases(
    "component refused",
    pinned=("Click@8.5.1", False),
    other_version=("click@8.5.0", True),
    not_pinned=("other@1", True),
)
def test_a_bill_of_materials_lists_pinned_versions_only(
    tmp_path: Path, component: str, refused: bool
) -> None:
    bill, pins = tmp_path / "bill.json", tmp_path / "constraints.txt"
    name, _, version = component.partition("@")
    components = [{"name": "Own", "version": "1"}, {"name": name, "version": version}]
    bill.write_text(json.dumps({"components": components}))
    pins.write_text("click==8.5.1 ; python_version < '4' \\\n    --hash=sha256:00\n")

    if refused:
        with pytest.raises(release.ReleaseError, match="not pinned"):
            release.check_bill(bill, pins, frozenset({"own"}))
    else:
        release.check_bill(bill, pins, frozenset({"own"}))
