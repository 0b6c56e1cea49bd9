"""Of the probes that name one key, the first owns it. The whole product over a fake API server."""

from itertools import permutations

import pytest
from support.builders import marker_wire, probe_wire, state_wire
from support.running_manager import settle
from support.scene import POLICIES, Scene
from unit.controllers.common import FALSE, marker_condition, marker_message

from kruise_probe.api.resources import MARKERS

SUCCEEDED, FAILED = POLICIES
MARKERS_OF = {
    "zz": marker_wire(
        "zz",
        created="2025-01-01T00:00:00Z",
        probes=[probe_wire("other", policies=[SUCCEEDED])],
    ),
    "aa": marker_wire(
        "aa",
        probes=[probe_wire(policies=POLICIES)],
    ),
    "bb": marker_wire(
        "bb",
        probes=[probe_wire("b", policies=[FAILED], condition="b")],
    ),
}
"""The oldest is `zz`: age is compared before the name."""


@pytest.mark.parametrize("order", list(permutations(MARKERS_OF)), ids="-".join)
async def test_the_owner_is_the_same_in_every_order_of_events(order: tuple[str, ...]) -> None:
    """Each marker that lost a key has a warning, and another one only if the conflict changes."""
    api = Scene()
    api.put_node("node-1", "web-0")
    async with api.running():
        for name in order:
            api.put(MARKERS, MARKERS_OF[name])
            await settle()
        await api.report(
            state_wire("zz#other", "Failed"),
            state_wire("aa#healthy"),
            state_wire("bb#b", "Failed"),
        )
        assert api.labels() == {}
        assert api.condition() == FALSE
        assert api.condition("b") == FALSE
        assert api.says("Conflict", "zz")[0] == "False"
        for name, owner in (("aa", "default/zz"), ("bb", "default/aa")):
            assert marker_condition(api, "Conflict", name) == ("True", "ClaimedByAnother")
            assert owner in marker_message(api, "Conflict", name)
        warned = {event.about for event in api.events if event.type == "Warning"}
        assert warned == {"PodProbeMarker/aa", "PodProbeMarker/bb"}
        messages = [(event.about, event.message) for event in api.events]
        assert len(messages) == len(set(messages))
        await api.drop(MARKERS, "zz")
        assert api.says("Conflict", "aa")[0] == "False"
        assert api.labels() == {"healthy": "true"}
