"""The PodProbeMarkers that other controllers create, as their Go structs are encoded."""

from typing import Any

Json = dict[str, Any]

UID = "0c4ad6d7-1f5a-4f3a-8b2e-111111111111"
HASH = "game.kruise.io/ppm-hash"

GAME: Json = {
    "apiVersion": "apps.kruise.io/v1alpha1",
    "kind": "PodProbeMarker",
    "metadata": {
        "name": "minecraft",
        "annotations": {HASH: "5cd6c8f67"},
        "ownerReferences": [
            {
                "apiVersion": "game.kruise.io/v1alpha1",
                "kind": "GameServerSet",
                "name": "minecraft",
                "uid": UID,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    },
    "spec": {
        "selector": {"matchLabels": {"game.kruise.io/owner-gss": "minecraft"}},
        "probes": [
            {
                "name": name,
                "containerName": "minecraft",
                "probe": {
                    "exec": {"command": ["bash", f"./{name}.sh"]},
                    "initialDelaySeconds": 10,
                    "timeoutSeconds": 5,
                    "periodSeconds": 3,
                    "successThreshold": 1,
                    "failureThreshold": 3,
                },
                "podConditionType": f"game.kruise.io/{name}",
            }
            for name in ("idle", "healthy")
        ],
    },
}
"""Of kruise-game, for the service qualities of a GameServerSet."""

SANDBOX: Json = {
    "apiVersion": "apps.kruise.io/v1alpha1",
    "kind": "PodProbeMarker",
    "metadata": {
        "name": "box",
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": "box",
                "uid": UID,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    },
    "spec": {
        "selector": {"matchLabels": {"agents.kruise.io/sandbox-uid": UID}},
        "probes": [
            {
                "name": "idle",
                "containerName": "main",
                "probe": {"exec": {"command": ["sh", "-c", "test ! -e /busy"]}},
                "podConditionType": "agents.kruise.io/idle",
            }
        ],
    },
}
"""Of openkruise/agents, for the probes of a Sandbox: one for each pod. It compares specs as JSON."""
