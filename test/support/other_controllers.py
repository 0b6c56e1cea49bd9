"""The PodProbeMarkers that other controllers create, as their Go structs are encoded."""

from pathlib import Path

import yaml

UID = "0c4ad6d7-1f5a-4f3a-8b2e-111111111111"
HASH = "game.kruise.io/ppm-hash"
GAME, SANDBOX = yaml.safe_load_all(
    (Path(__file__).parents[1] / "data" / "other-controllers.yaml").read_text()
)
