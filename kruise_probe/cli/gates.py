"""The feature gates of manager and daemon: `--feature-gates`.

Source: k8s.io/component-base/featuregate (AllAlpha, AllBeta); Kruise pkg/features for the names.
Differs: only the gates that this project uses are known.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from kruise_probe.cli.flag_types import BOOLEANS, Parsed, flag


class Gate(NamedTuple):
    name: str
    default: bool
    stage: str

    def enabled(self, values: Mapping[str, bool]) -> bool:
        """By the values of `--feature-gates`. The gate's own name overrides AllAlpha and AllBeta."""
        of_stage = values.get(_ALL_OF_STAGE[self.stage], self.default)
        return values.get(self.name, of_stage)


PROBE_MARKERS: Final = Gate("PodProbeMarkerGate", default=True, stage="BETA")
DAEMON: Final = Gate("KruiseDaemon", default=True, stage="BETA")
SERVERLESS: Final = Gate(
    "EnablePodProbeMarkerOnServerless",
    default=False,
    stage="ALPHA",
)
_KNOWN: Final = {gate.name: gate for gate in (PROBE_MARKERS, DAEMON, SERVERLESS)}
_ALL_OF_STAGE: Final = {"ALPHA": "AllAlpha", "BETA": "AllBeta"}


def parse_gates(text: str) -> Mapping[str, bool]:
    """Parse `Name=true,Other=false`.

    Raises:
        ValueError: an unknown name, or a value that is not a boolean; the message lists what is valid.
    """
    values: dict[str, bool] = {}
    names = [*_KNOWN, *_ALL_OF_STAGE.values()]
    for part in text.split(","):
        if not part.strip():
            continue
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in names:
            raise ValueError(f"unknown feature gate {name!r}; choose from {', '.join(names)}")
        if value not in BOOLEANS:
            raise ValueError(f"{part.strip()!r}: write {name}=true or {name}=false")
        values[name] = BOOLEANS[value]
    return values


def describe_gates() -> str:
    """Each gate with its stage and default, for `--help`."""
    described = []
    for gate in _KNOWN.values():
        default = str(gate.default).lower()
        described.append(f"{gate.name}=true|false ({gate.stage}, default {default})")
    return "; ".join(described)


gates_flag: Final = partial(
    flag, kind=Parsed("gates", parse_gates), default="", metavar="NAME=BOOL,…"
)
