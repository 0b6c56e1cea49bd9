"""Of the probes that name one key, the first owns it. The whole product over a fake API server."""

from itertools import permutations

import pytest
from support.builders import marker_wire, probe_wire, state_wire
from support.running_manager import settle
from support.scene import POLICIES, Scene
from support.wire import Json

from kruise_probe.api.resources import MARKERS

RIVAL = probe_wire("other", policies=[POLICIES[0]])
MARKERS_OF: dict[str, Json] = {
    "zz": {"probes": [RIVAL], "created": "2025-01-01T00:00:00Z"},
    "aa": {"probes": [probe_wire(policies=POLICIES)]},
    "bb": {"probes": [probe_wire("b", policies=[POLICIES[1]], condition="b")]},
}
"""The oldest is `zz`: age is compared before the name."""


@pytest.mark.parametrize("order", list(permutations(MARKERS_OF)), ids="-".join)
async def test_the_owner_is_the_same_in_every_order_of_events(order: tuple[str, ...]) -> None:
    """Each marker that lost a key has a warning, and another one only if the conflict changes."""
    api = Scene()
    api.put_node("node-1", "web-0")
    async with api.running():
        for name in order:
            api.put(MARKERS, marker_wire(name, **MARKERS_OF[name]))
            await settle()
        results = {"zz#other": "Failed", "aa#healthy": "Succeeded", "bb#b": "Failed"}
        await api.report(*(state_wire(*each) for each in results.items()))
        assert api.labels() == {}
        assert api.condition() == api.condition("b") == ("False", "")
        assert api.says("Conflict", "zz")[0] == "False"
        for name, owner in (("aa", "default/zz"), ("bb", "default/aa")):
            assert api.says("Conflict", name)[:2] == ("True", "ClaimedByAnother")
            assert owner in api.says("Conflict", name)[2]
        warned = [each.about for each in api.events if each.type == "Warning"]
        assert set(warned) == {"PodProbeMarker/aa", "PodProbeMarker/bb"}
        messages = [(each.about, each.message) for each in api.events]
        assert len(messages) == len(set(messages))
        await api.drop(MARKERS, "zz")
        assert api.says("Conflict", "aa")[0] == "False"
        assert api.labels() == {"healthy": "true"}
