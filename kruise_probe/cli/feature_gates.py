"""Feature gates, as `--feature-gates` names them.

Source: k8s.io/component-base/featuregate (AllAlpha, AllBeta); Kruise pkg/features for the names.
Differs: only the gates that this project uses are known.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def parse_bool(text: str) -> bool | None:
    """Parse a boolean as Go's strconv.ParseBool does; None if it is invalid."""
    if text in _TRUE:
        return True
    return False if text in _FALSE else None


class GateError(ValueError):
    """An unknown gate or an invalid value; the message lists the known gates or valid values."""


class Stage(StrEnum):
    ALPHA = "ALPHA"
    BETA = "BETA"


class Gate(NamedTuple):
    name: str
    default: bool
    stage: Stage


PROBE_MARKERS: Final = Gate("PodProbeMarkerGate", default=True, stage=Stage.BETA)
DAEMON: Final = Gate("KruiseDaemon", default=True, stage=Stage.BETA)
SERVERLESS: Final = Gate("EnablePodProbeMarkerOnServerless", default=False, stage=Stage.ALPHA)
_KNOWN: Final = {gate.name: gate for gate in (PROBE_MARKERS, DAEMON, SERVERLESS)}
_STAGES: Final = {"AllAlpha": Stage.ALPHA, "AllBeta": Stage.BETA}


class FeatureGates(NamedTuple):
    """The values of `--feature-gates` over the defaults. A gate's own name overrides AllAlpha and AllBeta."""

    overrides: Mapping[str, bool]

    def enabled(self, gate: Gate) -> bool:
        if gate.name in self.overrides:
            return self.overrides[gate.name]
        for name, stage in _STAGES.items():
            if stage is gate.stage and name in self.overrides:
                return self.overrides[name]
        return gate.default


def parse_gates(text: str) -> FeatureGates:
    """Parse `Name=true,Other=false`.

    Raises:
        GateError: an unknown name, or a value that is not a boolean.
    """
    values: dict[str, bool] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in _KNOWN and name not in _STAGES:
            known = ", ".join([*_KNOWN, *_STAGES])
            raise GateError(f"unknown feature gate {name!r}; choose from {known}")
        enabled = parse_bool(value)
        if enabled is None:
            raise GateError(f"{part!r}: write {name}=true or {name}=false")
        values[name] = enabled
    return FeatureGates(values)


def describe_gates() -> str:
    """Each gate with its stage and default, for `--help`."""
    return "; ".join(
        f"{gate.name}=true|false ({gate.stage}, default {str(gate.default).lower()})"
        for gate in _KNOWN.values()
    )
