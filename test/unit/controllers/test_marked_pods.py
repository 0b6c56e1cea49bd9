"""Which pods have a mark that a marker names."""

from typing import Any

import pytest
from support.builders import marker, owned_fields, pod, policy_wire, probe_wire
from support.fake_api import FakeApi
from support.running_manager import informers_over

from kruise_probe.controllers.caches import Caches
from kruise_probe.controllers.compiled import compile_marker

PROBE = probe_wire(
    condition="example.com/ours",
    policies=[policy_wire("Succeeded", {"ours": "1"}, {"ours": "1"})],
)


@pytest.mark.parametrize(
    ("marks", "found"),
    [
        pytest.param({"labels": ["ours"]}, True, id="label"),
        pytest.param({"annotations": ["ours"]}, True, id="annotation"),
        pytest.param({"conditions": ["example.com/ours"]}, True, id="condition"),
        pytest.param(
            {"labels": ["a"], "annotations": ["b"], "conditions": ["c"]}, False, id="of-others"
        ),
        pytest.param({"labels": ["example.com/ours"], "conditions": ["ours"]}, False, id="swapped"),
    ],
)
async def test_a_marker_finds_the_pods_with_a_mark_that_it_names(
    marks: dict[str, Any], found: bool
) -> None:
    marked = Caches(informers_over(FakeApi()), namespace="").marked
    one = pod(owned=owned_fields(**marks))
    marked.set_pod(None, one)
    assert list(marked.of_marker(compile_marker(marker(probes=[PROBE])))) == (
        [one] if found else []
    )


async def test_pods_without_marks_use_no_memory() -> None:
    marked = Caches(informers_over(FakeApi()), namespace="").marked
    one, none = pod(owned=owned_fields(labels=["ours"])), pod()
    marked.set_pod(None, none)
    assert marked._pods == {}
    marked.set_pod(none, one)
    marked.set_pod(one, none)
    assert marked._pods == {"default": {}}
