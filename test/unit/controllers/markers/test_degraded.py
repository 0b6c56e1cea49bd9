"""Markers with mistakes report them, and affect no other. The whole product over a fake API server."""

from support.builders import container_wire, probe_wire
from support.fake_api import refusing
from support.running_manager import running_manager, settle
from support.scene import POLICIES, Scene
from unit.controllers.common import event_reasons, put_pod

from kruise_probe.api.errors import ServerError
from kruise_probe.api.resources import MARKERS

NATIVE = probe_wire("native", condition="Ready")
"""A probe whose condition type is reserved."""


async def test_an_invalid_marker_reports_it_and_affects_no_other(api: Scene) -> None:
    bad = probe_wire("bad", handler={"httpGet": {"port": 80, "host": "10.0.0.1"}})
    api.put_marker(
        bad,
        NATIVE | {"markerPolicy": list(POLICIES)},
        name="broken",
    )
    async with api.reported("Succeeded"):
        status, reason, message = api.says(marker="broken")
        assert status == "True"
        assert reason == "InvalidSpec"
        assert "spec.probes[0].probe.httpGet.host" in message
        assert "spec.probes[1].podConditionType" in message
        assert api.says()[0] == "False"
    warned = [event for event in api.events if event.about == "PodProbeMarker/broken"]
    assert warned == [("PodProbeMarker/broken", "Warning", "InvalidSpec", message)]
    assert api.probes() == {"web-1": ["broken#native", "web#healthy"]}


async def test_each_marker_of_a_name_has_its_own_warning(api: Scene) -> None:
    async with running_manager(api):
        for uid in ("first", "second"):
            api.put_marker(NATIVE, name="broken", uid=uid)
            await settle()
            await api.drop(MARKERS, "broken")
            assert api.find(MARKERS, "broken") is None
    warned = [(event.about, event.reason) for event in api.events]
    assert warned == [("PodProbeMarker/broken", "InvalidSpec")] * 2


async def test_an_error_that_changes_or_comes_back_has_another_warning(api: Scene) -> None:
    async with running_manager(api):
        for type in ("Ready", "PodScheduled", "example.com/a", "Ready"):
            await api.change_probes(probe_wire("native", condition=type))
    assert event_reasons(api) == ["InvalidSpec"] * 3


async def test_a_warning_is_recorded_after_the_status_that_reports_it(api: Scene) -> None:
    """So a manager that is restarted before or after it has written the status records no second one."""
    api.put_marker(NATIVE)
    api.before = refusing(
        ServerError("no"),
        subresource="status",
    )
    await api.run()
    api.before = lambda write: None
    for _ in range(2):
        await api.run()
    assert event_reasons(api) == ["InvalidSpec"]


async def test_a_probe_of_a_plain_init_container_is_reported(api: Scene) -> None:
    put_pod(
        api,
        "web-1",
        init_containers=[container_wire("setup")],
    )
    api.put_marker(
        probe_wire(),
        probe_wire("p", container="setup", condition="p"),
    )
    await api.run()
    status, reason, message = api.says()
    assert status == "True"
    assert reason == "ContainerNotFound"
    assert "'setup'" in message
    assert "2 of 2 pods. Correct containerName in the marker" in message
