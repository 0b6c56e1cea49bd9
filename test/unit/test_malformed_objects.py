"""Objects that break the rules stop no manager and delay no other object, if an API server without the rules has taken them.

`unit/daemon/test_supervisor.py` shows the same for the daemon.
"""

from collections.abc import Iterator
from itertools import cycle

import pytest
from structlog.testing import capture_logs
from support.builders import marker_wire, pod_status_wire, pod_wire, state_wire
from support.marker_table import GOOD, INVALID, Row
from support.running_manager import settle
from support.scene import scene
from support.wire import Json

from kruise_probe.api.resources import MARKERS, PODS

BATCH = 50
NAMES = ("web#healthy", "", "#", "web#", "#healthy", "web#healthy#", "x" * 300, "\ud7ff")
TIMES = ("", "no time", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59")


def hostile_markers(rows: tuple[Row, ...]) -> Iterator[Json]:
    """The markers of these rows; all select the pods `app=web`, except for those whose selector is invalid."""
    for number, row in enumerate(rows):
        wire = marker_wire(f"row-{number}", created="2026-01-02T00:00:00Z")
        wire["spec"] = dict(row.spec)
        if row.spec.get("selector") == GOOD["selector"]:
            wire["spec"]["selector"] = {"matchLabels": {"app": "web"}}
        yield wire


def hostile_results(state: str, time: str) -> list[Json]:
    """Results of pods and probes that may not exist; states and times are arbitrary texts."""
    names = [*NAMES, *(f"row-{number}#Idle" for number in range(BATCH))]
    states = [
        state_wire(
            name,
            text,
            "\x00\n{{" * 400,
            probed=time,
            moved=time,
        )
        for name, text in zip(names, cycle((state, "", "Odd")), strict=False)
    ]
    pods = [
        pod_wire("web-1"),
        pod_wire("web-0", uid="another"),
        pod_wire("web-0", namespace=""),
    ]
    return [pod_status_wire(pod, *states) for pod in pods]


@pytest.mark.parametrize("first", range(0, len(INVALID), BATCH))
async def test_d12_malformed_markers_and_results_stop_no_manager_and_delay_no_other(
    first: int,
) -> None:
    rows = INVALID[first : first + BATCH]
    api = scene()
    api.put(PODS, pod_wire("web-1"))
    with capture_logs() as logs:
        async with api.running():
            for wire in hostile_markers(rows):
                api.put(MARKERS, wire)
            for number, time in enumerate(TIMES):
                state = "Failed" if number % 2 else "Succeeded"
                good = pod_status_wire(pod_wire("web-0"), state_wire(state=state))
                api.publish(*hostile_results(state, time), good)
                await settle()
                status = "False" if number % 2 else "True"
                assert api.condition() == (status, "")
            api.publish()
            for number in range(len(rows)):
                api.edit(MARKERS, f"row-{number}", {"metadata": {"finalizers": None}})
                api.remove(MARKERS, f"row-{number}")
            await settle()
    assert api.probes() == {"web-0": ["web#healthy"], "web-1": ["web#healthy"]}
    assert not [line for line in logs if line["log_level"] in ("error", "critical")]
