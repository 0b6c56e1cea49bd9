"""The repository holds two distributions; the product's contains nothing of the playground."""

import importlib.metadata
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import click
import pytest

from kruise_probe import __version__
from kruise_probe.cli.completion import completions_for_kubectl
from kruise_probe.cli.main import cli, run

ROOT = Path(__file__).parents[2]
PRODUCT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PLAYGROUND = tomllib.loads((ROOT / "playground/pyproject.toml").read_text())["project"]


def wheel_of(project: Path, folder: Path) -> set[str]:
    """Build a wheel without network; return the paths in it."""
    options = "--quiet --no-deps --no-build-isolation --no-index --disable-pip-version-check"
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options.split(), "--wheel-dir", folder, project],
        check=True,
        timeout=60,
    )
    (wheel,) = folder.iterdir()
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.parametrize(
    ("project", "package"),
    [
        pytest.param(ROOT, "kruise_probe", id="product"),
        pytest.param(ROOT / "playground", "kruise_probe_playground", id="playground"),
    ],
)
def test_a_wheel_contains_one_package(project: Path, package: str, tmp_path: Path) -> None:
    paths = wheel_of(project, tmp_path)
    tops = {path.partition("/")[0] for path in paths}
    assert tops == {package, f"{package}-{__version__}.dist-info"}
    data = {str(path.relative_to(project)) for path in (project / package).rglob("*.yaml")}
    assert data <= paths


def test_the_playground_requires_the_product_of_its_own_version() -> None:
    assert f"{PRODUCT['name']}=={PLAYGROUND['version']}" in PLAYGROUND["dependencies"]
    assert PLAYGROUND["version"] == __version__
    assert PLAYGROUND["requires-python"] == PRODUCT["requires-python"]


@pytest.fixture
def without_playground(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())


@pytest.mark.usefixtures("without_playground")
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["playground"], id="alone"),
        pytest.param(["playground", "--check", "-f", "a.yaml"], id="with-flags"),
        pytest.param(["playground", "--help"], id="help"),
    ],
)
def test_a_missing_playground_says_what_to_install(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments, {}) == 1

    assert capsys.readouterr().err == (
        "kruise-probe: playground is a separate distribution and not installed; "
        "run: pip install kruise-probe-playground\n"
    )


@pytest.mark.usefixtures("without_playground")
def test_help_and_completion_work_without_the_playground(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["--help"], {}) == 0

    assert "  playground  Run everything on this machine" in capsys.readouterr().out
    assert "playground" in cli.list_commands(click.Context(cli))
    assert "lint\t" in completions_for_kubectl(cli, [""])
