import pytest

from kruise_probe.cli.main import run


@pytest.mark.looptime(False)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_asks_this_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["completion", shell], {})

    out = capsys.readouterr().out
    assert code == 0
    assert f"_KRUISE_PROBE_COMPLETE={shell}_complete" in out
    assert "kruise-probe" in out


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"], {}) == 2
    assert "bash" in capsys.readouterr().err
