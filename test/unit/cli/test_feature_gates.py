"""`--feature-gates` accepts what Go's component-base accepts."""

import pytest

from kruise_probe.cli.feature_gates import DAEMON, SERVERLESS, GateError, parse_gates


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *[pytest.param(text, True, id=text) for text in ("1", "t", "T", "true", "TRUE", "True")],
        *[
            pytest.param(text, False, id=text)
            for text in ("0", "f", "F", "false", "FALSE", "False")
        ],
    ],
)
def test_gate_accepts_every_boolean_of_go(value: str, expected: bool) -> None:
    gates = parse_gates(f"{SERVERLESS.name}={value},{DAEMON.name}={value}")

    assert gates.enabled(SERVERLESS) is expected
    assert gates.enabled(DAEMON) is expected


@pytest.mark.parametrize(
    ("text", "serverless", "daemon"),
    [
        pytest.param("", False, True, id="defaults"),
        pytest.param("EnablePodProbeMarkerOnServerless=true", True, True, id="by-name"),
        pytest.param("AllAlpha=true", True, True, id="all-alpha"),
        pytest.param("AllBeta=false", False, False, id="all-beta"),
        pytest.param("AllBeta=false,KruiseDaemon=true", False, True, id="name-wins-over-stage"),
        pytest.param("KruiseDaemon=true,AllBeta=false", False, True, id="in-any-order"),
        pytest.param(" KruiseDaemon = False , ", False, False, id="spaces"),
    ],
)
def test_gate_name_overrides_its_stage_and_the_default(
    text: str, serverless: bool, daemon: bool
) -> None:
    gates = parse_gates(text)

    assert (gates.enabled(SERVERLESS), gates.enabled(DAEMON)) == (serverless, daemon)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("Nope=true", "choose from PodProbeMarkerGate, KruiseDaemon", id="unknown"),
        pytest.param("KruiseDaemon", "KruiseDaemon=true or KruiseDaemon=false", id="without-value"),
        pytest.param("KruiseDaemon=maybe", "KruiseDaemon=true", id="not-a-boolean"),
    ],
)
def test_wrong_gates_are_refused_with_the_valid_ones(text: str, error: str) -> None:
    with pytest.raises(GateError, match=error):
        parse_gates(text)
