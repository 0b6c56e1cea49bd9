"""The values of flags, as the commands parse them: Go's syntax, booleans as pflag, and variables."""

from pathlib import Path
from typing import Any

import click
import pytest
from support.cases import cases
from support.kubeconfig import kubeconfig

from kruise_probe.cli.gates import DAEMON, SERVERLESS
from kruise_probe.cli.main import cli
from kruise_probe.cli.query import config_of
from kruise_probe.client import config


def params(line: str, *words: str, **options: Any) -> dict[str, Any]:
    """The parsed flags of a command line."""
    name, *rest = [*line.split(), *words]
    command = cli.get_command(click.Context(cli), name)
    assert command
    return command.make_context(name, rest, **options).params


VALUES = {
    "--sync-period=15s": 15,
    "--sync-period=1m30s": 90,
    "--sync-period=500ms": 0.5,
    "--sync-period=1.5h": 5400,
    "--sync-period=0": 0,
    "--sync-period=+2s": 2,
    "--sync-period=1h2m3s4ms5us6ns": pytest.approx(3723.004005006),
    "--sync-period=.5s": 0.5,
    "--enable-leader-election=T": True,
    "--enable-leader-election=1": True,
    "--enable-leader-election=FALSE": False,
    "--enable-leader-election=0": False,
    "--metrics-addr=:8080": ("", 8080),
    "--metrics-addr=[::1]:8080": ("::1", 8080),
    "--metrics-addr=[10.0.0.1]:8080": ("10.0.0.1", 8080),
    "--metrics-addr=localhost:0": ("localhost", 0),
    "--metrics-addr=0": None,
    "--metrics-addr=": None,
    "--rest-config-qps=0.5": 0.5,
    "--nodepodprobe-workers=7": 7,
    "--allowed-label-keys=": set(),
    "--allowed-label-keys= a.example/b, c ,": {"a.example/b", "c"},
}


@pytest.mark.parametrize("flag", VALUES)
def test_value_is_accepted(flag: str) -> None:
    name = flag.partition("=")[0].removeprefix("--").replace("-", "_")
    assert params("manager", flag)[name] == VALUES[flag]


@cases(
    "flag values error",
    duration=(
        "--sync-period",
        ["15", "", "s", "-1s", "1 s", "1d", "1s2", "nan"],
        "write it as 15s",
    ),
    boolean=(
        "--enable-leader-election",
        ["yes", "on", "", "tRue"],
        "write true or false",
    ),
    rate=(
        "--rest-config-qps",
        ["nan", "inf", "1e400", "-1", "many"],
        "write one such as 20",
    ),
    number=(
        "--nodepodprobe-workers",
        ["many", "0", "1.5", "9" * 400, ""],
        "whole number of at least 1",
    ),
    address=(
        "--metrics-addr",
        ["8080", ":http", ":70000", "::1:8080", "a:b:1", "127.0.0.1"],
        "write :8080",
    ),
    label_key=(
        "--allowed-label-keys",
        ["a b", "topology.kubernetes.io/*"],
        "is not a label key",
    ),
    label_keys=(
        "--allowed-label-keys",
        [",".join(f"k{number}" for number in range(33))],
        "33 keys are too many; write at most 32",
    ),
    unknown_gate=(
        "--feature-gates",
        ["Nope=true"],
        "choose from PodProbeMarkerGate, KruiseDaemon",
    ),
    gate=(
        "--feature-gates",
        ["KruiseDaemon", "KruiseDaemon=maybe"],
        "KruiseDaemon=true or KruiseDaemon=false",
    ),
)
def test_other_values_are_refused_with_an_example(flag: str, values: list[str], error: str) -> None:
    for value in values:
        with pytest.raises(click.BadParameter) as raised:
            params("manager", f"{flag}={value}")
        message = raised.value.format_message()
        assert error in message, value
        assert flag in message


@cases(
    "text serverless daemon",
    defaults=("", False, True),
    by_name=("EnablePodProbeMarkerOnServerless=true", True, True),
    of_go=("EnablePodProbeMarkerOnServerless=t,KruiseDaemon=F", True, False),
    all_alpha=("AllAlpha=true", True, True),
    alpha_is_not_beta=("AllAlpha=false", False, True),
    all_beta=("AllBeta=false", False, False),
    name_wins_over_stage=("AllBeta=false,KruiseDaemon=true", False, True),
    in_any_order=("KruiseDaemon=true,AllBeta=false", False, True),
    spaces=(" KruiseDaemon = False , ", False, False),
)
def test_gate_name_overrides_its_stage_and_the_default(
    text: str, serverless: bool, daemon: bool
) -> None:
    gates = params("manager", f"--feature-gates={text}")["feature_gates"]
    assert SERVERLESS.enabled(gates) == serverless
    assert DAEMON.enabled(gates) == daemon


@cases(
    "arguments everywhere watch markers",
    none=("", False, False, ()),
    flag_and_argument=("--watch game", False, True, ("game",)),
    true=("--watch=true game", False, True, ("game",)),
    false=("--watch=false -w=F", False, False, ()),
    short=("-A=true -w=1", True, True, ()),
    both_in_one=("-Aw", True, True, ()),
    both_in_one_with_a_value=("-Aw=false", True, False, ()),
    last_value_of_both=("-wA=true -A=0", False, True, ()),
    before_another_flag=("-Awo json", True, True, ()),
    one_of_two=("--all-namespaces=0 -w", False, True, ()),
    last_is_false=("-w --watch=false", False, False, ()),
    last_is_true=("-w=false --watch", False, True, ()),
    argument=("-- -w=false", False, False, ("-w=false",)),
    kinds=("ppm/game PodProbeMarkers/b", False, False, ("game", "b")),
)
def test_boolean_flags_are_those_of_pflag(
    arguments: str, everywhere: bool, watch: bool, markers: tuple[str, ...]
) -> None:
    found = params(f"status {arguments}")
    assert found["all_namespaces"] == everywhere
    assert found["watch"] == watch
    assert found["markers"] == markers


def test_completion_ignores_a_malformed_value_of_a_flag() -> None:
    assert params("status -w=maybe -n a", resilient_parsing=True)["namespace"] == "a"


@pytest.mark.parametrize(
    "text", ["unix:///a,unix:///b", "unix:///a unix:///b", " unix:///a , unix:///b,"]
)
def test_commas_and_spaces_separate_endpoints_of_the_environment(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRUISE_PROBE_CRI_ENDPOINT", text)
    assert params("daemon --node-name=a")["cri_endpoint"] == ("unix:///a", "unix:///b")


def test_commands_prefer_the_home_kubeconfig_to_the_service_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("of-the-pod")
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube" / "config", cluster={"server": "http://mine:1"})
    monkeypatch.setattr(config, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")

    assert config_of({}).server == "http://mine:1"
