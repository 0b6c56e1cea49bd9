"""Feature gates read what Go's do."""

import pytest

from kruise_probe.cli.gates import DAEMON, PROBE_MARKERS, SERVERLESS, parse_gates


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
def test_a_gate_takes_every_boolean_of_go(value: str, expected: bool) -> None:
    gates = parse_gates(f"{SERVERLESS.name}={value},{DAEMON.name}={value}")

    assert gates.enabled(SERVERLESS) is expected
    assert gates.enabled(DAEMON) is expected


def test_a_gate_by_name_wins_over_its_stage() -> None:
    gates = parse_gates("AllBeta=false,PodProbeMarkerGate=true,AllAlpha=true")

    assert gates.enabled(PROBE_MARKERS)
    assert not gates.enabled(DAEMON)
    assert gates.enabled(SERVERLESS)
