"""Changes as lines of text."""

import msgspec
from support.builders import condition_wire, state_wire
from support.snapshots import healthy_pod, snapshot

from kruise_probe.inspection.status import status_view
from kruise_probe_playground.node.pods import NODE_PODS
from kruise_probe_playground.rows import pod_rows
from kruise_probe_playground.ticker import POD_EVENTS, changes, event_line


def test_each_change_is_one_line_whatever_a_command_prints() -> None:
    """A command that fails has the lines of stderr, then those of stdout."""
    printed = "sh: 1: cannot open players: No such file\nplayers"
    failed = condition_wire("example.com/healthy", "False", message=printed)
    wire = healthy_pod(conditions=[failed])
    there = snapshot(
        pods=[wire],
        states=[state_wire(state="Failed", message=printed)],
    )
    view = status_view(there, there.markers, [])
    pod = NODE_PODS.decode(msgspec.json.encode(wire))
    (row,) = pod_rows([pod], view, there.pods_by_key)
    event = {"metadata": {"name": "e"}, "message": printed}
    decoded = POD_EVENTS.decode(msgspec.json.encode(event))

    lines = [*changes(None, row), event_line(decoded)]

    of_change, of_event = [line.text for line in lines if "cannot open players" in line.text]
    assert of_change.endswith("No such file players")
    assert of_event.endswith("No such file players")
