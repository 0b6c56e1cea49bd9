"""What is left out when a node is asked for too much."""

from collections.abc import Mapping

import pytest
from support.builders import marker, pod, probe_wire

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.v1alpha1 import PodProbe
from kruise_probe.controllers.compiled import CompiledMarker, compile_marker
from kruise_probe.controllers.nodes.budget import Fitted, fit, object_bytes
from kruise_probe.controllers.nodes.plan import plan

OLD = compile_marker(marker("old", created="2025-01-01T00:00:00Z"))
NEW = compile_marker(marker("new", probes=[probe_wire("p", condition="c")]))


def entries(pods: int, *markers: CompiledMarker) -> tuple[PodProbe, ...]:
    return plan(
        [pod(f"web-{number}") for number in range(pods)], lambda _: markers, (), deleting={}
    )


def fitted(wanted: tuple[PodProbe, ...], current: tuple[PodProbe, ...], limit_bytes: int) -> Fitted:
    ranks: Mapping[NamespacedName, object] = {each.key: each.order for each in (OLD, NEW)}
    return fit(wanted, current, ranks, limit_bytes)


def probed(result: Fitted) -> dict[str, list[str]]:
    return {each.name: [probe.name for probe in each.probes or ()] for each in result.entries}


def test_what_fits_is_left_alone() -> None:
    wanted = entries(3, OLD, NEW)
    assert fitted(wanted, (), object_bytes(wanted)) == Fitted(wanted, {})


@pytest.mark.parametrize("limit", range(33_000, 40_000, 500))
def test_what_is_left_fits_as_far_as_it_may_be_left_out(limit: int) -> None:
    result = fitted(entries(5, OLD, NEW), (), limit)
    assert object_bytes(result.entries) <= limit
    assert sum(result.left_out.values()) + sum(map(len, probed(result).values())) == 10


def test_a_command_counts_as_it_is_stored() -> None:
    def wanted(letter: str) -> tuple[PodProbe, ...]:
        handler = {"exec": {"command": ["sh", "-c", letter * 100]}}
        return entries(2, compile_marker(marker("old", probes=[probe_wire(handler=handler)])))

    plain, escaped = object_bytes(wanted("x")), object_bytes(wanted("<"))
    assert escaped - plain == 2 * 100 * len("u003c")
    assert fitted(wanted("<"), (), plain).left_out == {OLD.key: 1}


def test_the_younger_marker_gives_way_first_and_no_more_than_needed() -> None:
    wanted = entries(3, OLD, NEW)
    result = fitted(wanted, (), object_bytes(wanted) - 1)
    assert probed(result) == {
        "web-0": ["old#healthy", "new#p"],
        "web-1": ["old#healthy", "new#p"],
        "web-2": ["old#healthy"],
    }
    assert result.left_out == {NEW.key: 1}


def test_a_running_probe_is_not_pushed_out_by_a_new_pod() -> None:
    wanted = entries(3, NEW)
    result = fitted(wanted, wanted[1:], object_bytes(wanted) - 1)
    assert probed(result) == {"web-1": ["new#p"], "web-2": ["new#p"]}


def test_entries_that_are_not_ours_to_drop_stay() -> None:
    stranger = compile_marker(marker("stranger"))
    assert probed(fitted(entries(1, stranger), (), 0)) == {"web-0": ["stranger#healthy"]}
