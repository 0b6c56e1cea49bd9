"""Boolean flags in Go's notation, and the configuration that the commands use."""

from pathlib import Path

import click
import pytest
import yaml

from kruise_probe.cli.query_client import config_of
from kruise_probe.cli.status import status
from kruise_probe.client import config


@pytest.mark.parametrize(
    ("arguments", "everywhere", "watch", "markers"),
    [
        pytest.param([], False, False, (), id="none"),
        pytest.param(["--watch", "game"], False, True, ("game",), id="flag-and-argument"),
        pytest.param(["--watch=true", "game"], False, True, ("game",), id="true"),
        pytest.param(["--watch=false", "-w=F"], False, False, (), id="false"),
        pytest.param(["-A=true", "-w=1"], True, True, (), id="short"),
        pytest.param(["-Aw"], True, True, (), id="both-in-one"),
        pytest.param(["-Aw=false"], True, False, (), id="both-in-one-with-a-value"),
        pytest.param(["-wA=true", "-A=0"], False, True, (), id="last-value-of-both"),
        pytest.param(["-Awo", "json"], True, True, (), id="before-another-flag"),
        pytest.param(["--all-namespaces=0", "-w"], False, True, (), id="one-of-two"),
        pytest.param(["-w", "--watch=false"], False, False, (), id="last-is-false"),
        pytest.param(["-w=false", "--watch"], False, True, (), id="last-is-true"),
        pytest.param(["--", "-w=false"], False, False, ("-w=false",), id="argument"),
    ],
)
def test_flags_of_status_take_a_value_after_the_equals_sign(
    arguments: list[str], everywhere: bool, watch: bool, markers: tuple[str, ...]
) -> None:
    params = status.make_context("status", arguments).params

    assert (params["all_namespaces"], params["watch"], params["markers"]) == (
        everywhere,
        watch,
        markers,
    )


def test_completion_ignores_a_malformed_value_of_a_flag() -> None:
    context = status.make_context("status", ["-w=maybe", "-n", "a"], resilient_parsing=True)

    assert context.params["namespace"] == "a"


def test_malformed_value_of_a_flag_names_the_flag() -> None:
    with pytest.raises(click.BadParameter) as raised:
        status.make_context("status", ["-w=maybe"])

    assert "'-w' / '--watch'" in raised.value.format_message()


def test_commands_prefer_the_home_kubeconfig_to_the_service_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("of-the-pod")
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(
        yaml.safe_dump(
            {
                "current-context": "mine",
                "contexts": [{"name": "mine", "context": {"cluster": "mine"}}],
                "clusters": [{"name": "mine", "cluster": {"server": "http://mine:1"}}],
            }
        )
    )
    monkeypatch.setattr(config, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")

    assert config_of({}).server == "http://mine:1"
