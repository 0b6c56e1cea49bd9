from datetime import UTC, datetime

import msgspec
import pytest

from kruise_probe.api.keys import ProbeKey, ProbeName
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.daemon.results import Change, Result, Results

KEY = ProbeKey("uid", "main", ProbeName("m", "p"))
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
OLD = Result(ProbeState.SUCCEEDED, "fine", "c1", "h1", NOON, NOON)


def told(results: Results) -> list[Change]:
    changes: list[Change] = []
    results.on_change = changes.append
    return changes


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        pytest.param({"state": ProbeState.FAILED}, Change.STATE, id="state"),
        pytest.param({"message": "better"}, Change.MESSAGE, id="message"),
        pytest.param({"container_id": "c2"}, Change.MESSAGE, id="container"),
        pytest.param({"probe_hash": "h2"}, Change.MESSAGE, id="probe"),
        pytest.param({"last_probe_at": NOON.replace(hour=13)}, Change.NOTHING, id="probed-again"),
    ],
)
def test_only_what_is_new_is_told(fields: dict[str, object], change: Change) -> None:
    results = Results()
    results.put(KEY, OLD)
    changes = told(results)
    new = msgspec.structs.replace(OLD, **fields)

    assert results.put(KEY, new) is change
    assert changes == ([change] if change else [])
    assert results.get(KEY) == new


def test_the_first_result_is_a_change_of_state() -> None:
    assert Results().put(KEY, OLD) is Change.STATE


def test_what_was_read_back_is_told_to_nobody() -> None:
    results = Results()
    changes = told(results)
    results.restore(KEY, OLD)
    assert results.newest == {KEY: OLD}
    assert changes == []


def test_removing_is_told_once() -> None:
    results = Results()
    results.put(KEY, OLD)
    changes = told(results)
    results.remove(KEY)
    results.remove(KEY)
    assert changes == [Change.MESSAGE]
    assert not results.newest


def test_a22_probes_of_one_container_have_results_of_their_own() -> None:
    results = Results()
    other = KEY._replace(probe=ProbeName("m", "q"))
    results.put(KEY, OLD)
    results.put(other, msgspec.structs.replace(OLD, state=ProbeState.FAILED))
    results.remove(other)
    assert results.newest == {KEY: OLD}
