"""The repository holds two distributions; the product's contains nothing of the playground."""

import importlib.metadata
import tomllib

import click
import pytest
from support.cases import cases
from support.pages import ROOT

from kruise_probe import __version__
from kruise_probe.cli.main import cli, completions_for_kubectl, run

PRODUCT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PLAYGROUND = tomllib.loads((ROOT / "playground/pyproject.toml").read_text())["project"]


def test_the_playground_requires_the_product_of_its_own_version() -> None:
    assert f"{PRODUCT['name']}=={PLAYGROUND['version']}" in PLAYGROUND["dependencies"]
    assert PLAYGROUND["version"] == __version__
    assert PLAYGROUND["requires-python"] == PRODUCT["requires-python"]


@pytest.fixture
def without_playground(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())


@pytest.mark.usefixtures("without_playground")
@cases(
    "arguments",
    alone=["playground"],
    with_flags=["playground", "--check", "-f", "a.yaml"],
    help=["playground", "--help"],
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
