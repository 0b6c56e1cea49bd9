from pathlib import Path

import click
import pytest
from support.cases import cases

from kruise_probe.cli.main import cli, completions_for_kubectl, run
from kruise_probe.cli.query import complete_markers
from kruise_probe.cli.status import status


@pytest.mark.looptime(False)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_calls_this_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell], {}) == 0

    out = capsys.readouterr().out
    assert f"_KRUISE_PROBE_COMPLETE={shell}_complete" in out
    assert "kruise-probe" in out


def test_no_name_is_completed_without_a_cluster(tmp_path: Path) -> None:
    context = click.Context(status)
    context.params = {"kubeconfig": str(tmp_path / "none")}
    assert complete_markers(context, status.params[0], "g") == []


def test_fish_does_not_cut_descriptions_at_commas(capsys: pytest.CaptureFixture[str]) -> None:
    """click's own script does."""
    run(["completion", "fish"], {})
    assert 'split -m 1 ","' in capsys.readouterr().out


@cases(
    "arguments lines",
    command_with_its_help=(["sta"], ["status\tShow probes, results and problems.", ":4"]),
    value_of_a_flag=(["status", "-o", "y"], ["yaml", ":4"]),
    files=(["explain", "--kubeconfig", ""], [":0"]),
)
def test_completions_for_kubectl_have_the_format_of_cobra(
    arguments: list[str], lines: list[str]
) -> None:
    assert completions_for_kubectl(cli, arguments).splitlines() == lines


@cases("arguments", no_argument=[], empty_argument=[""])
def test_completions_for_kubectl_list_all_commands(arguments: list[str]) -> None:
    *lines, directive = completions_for_kubectl(cli, arguments).splitlines()
    commands = {line.partition("\t")[0] for line in lines}
    assert {"status", "explain"} <= commands
    assert directive == ":4"
