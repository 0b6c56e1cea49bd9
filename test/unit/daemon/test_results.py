import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from support.scripted_node import exec_probe, pod_of, probe_of, spec_of

from kruise_probe.api.keys import ProbeKey, ProbeName
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.daemon.diff import desired_probes
from kruise_probe.daemon.metrics import ProbeSeries
from kruise_probe.daemon.results import (
    PublishedResult,
    ResultChange,
    Results,
    StatePublisher,
    next_result,
)

KEY = ProbeKey("uid", "main", ProbeName("m", "p"))
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
OLD = PublishedResult(ProbeState.SUCCEEDED, "fine", "c1", "h1", NOON, NOON)


def changes_of(results: Results) -> list[ResultChange]:
    changes: list[ResultChange] = []
    results.on_change = changes.append
    return changes


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        pytest.param({"state": ProbeState.FAILED}, ResultChange.STATE, id="state"),
        pytest.param({"message": "better"}, ResultChange.MESSAGE, id="message"),
        pytest.param({"container_id": "c2"}, ResultChange.MESSAGE, id="container"),
        pytest.param({"probe_hash": "h2"}, ResultChange.STATE, id="probe"),
        pytest.param(
            {"last_probe_at": NOON.replace(hour=13)}, ResultChange.NOTHING, id="probed-again"
        ),
    ],
)
def test_only_changes_are_reported(fields: dict[str, object], change: ResultChange) -> None:
    results = Results()
    results.put(KEY, OLD)
    changes = changes_of(results)
    new = msgspec.structs.replace(OLD, **fields)

    assert results.put(KEY, new) is ("state" in fields)
    assert changes == ([change] if change else [])
    assert results.get(KEY) == new


def test_first_result_is_a_change_of_state() -> None:
    assert Results().put(KEY, OLD)


def test_restored_result_is_not_reported() -> None:
    results = Results()
    changes = changes_of(results)
    results.restore(KEY, OLD)
    assert results.newest == {KEY: OLD}
    assert changes == []


def test_removal_is_reported_once() -> None:
    results = Results()
    results.put(KEY, OLD)
    changes = changes_of(results)
    results.remove(KEY)
    results.remove(KEY)
    assert changes == [ResultChange.MESSAGE]
    assert not results.newest


def test_a22_probes_of_one_container_have_separate_results() -> None:
    results = Results()
    other = KEY._replace(probe=ProbeName("m", "q"))
    results.put(KEY, OLD)
    results.put(other, msgspec.structs.replace(OLD, state=ProbeState.FAILED))
    results.remove(other)
    assert results.newest == {KEY: OLD}


NEW = PublishedResult(ProbeState.SUCCEEDED, "fine", "c2", "h2", NOON.replace(hour=13), None)


@pytest.mark.parametrize(
    ("probed", "confirmed", "expected"),
    [
        pytest.param(True, True, NEW, id="confirmed-by-the-new-container"),
        pytest.param(
            True,
            False,
            msgspec.structs.replace(OLD, last_probe_at=NEW.last_probe_at),
            id="not-confirmed-yet",
        ),
        pytest.param(False, False, None, id="not-probed"),
    ],
)
def test_an_attempt_moves_the_probe_time_and_a_confirmed_state_its_container(
    probed: bool, confirmed: bool, expected: PublishedResult | None
) -> None:
    assert next_result(OLD, NEW, probed=probed, confirmed=confirmed) == expected


async def test_each_block_ends_with_unknown_after_the_grace_period() -> None:
    spec = spec_of(pod_of(probe_of(exec_probe("check", period_seconds=10), "m#p")))
    ((key, desired),) = desired_probes(spec).items()
    results = Results()
    publisher = StatePublisher(
        desired,
        results=results,
        series=ProbeSeries(key, desired.pod),
        recorded=None,
        on_transition=lambda _, __: None,
        now=lambda: NOON,
    )
    for _ in range(2):
        publisher.observe(ProbeState.SUCCEEDED, "")
        publisher.block("gone", by_container=True)
        states: list[ProbeState | None] = []
        for seconds in (29.9, 0.2):
            await asyncio.sleep(seconds)
            result = results.get(key)
            states.append(None if result is None else result.state)
        assert states == [ProbeState.SUCCEEDED, ProbeState.UNKNOWN]


async def test_an_edit_of_a_probe_that_is_unknown_keeps_the_time_at_which_it_became_so() -> None:
    spec = spec_of(pod_of(probe_of(exec_probe("check", period_seconds=10), "m#p")))
    ((key, desired),) = desired_probes(spec).items()
    results = Results()
    publisher = StatePublisher(
        desired,
        results=results,
        series=ProbeSeries(key, desired.pod),
        recorded=None,
        on_transition=lambda _, __: None,
        now=lambda: NOON + timedelta(seconds=asyncio.get_running_loop().time()),
    )
    publisher.block("gone", by_container=True)
    await asyncio.sleep(31)
    unknown = results.get(key)
    assert unknown is not None
    await asyncio.sleep(100)
    publisher.apply_new_grace_period()
    assert results.get(key) == unknown


async def test_the_transition_time_moves_only_with_the_state() -> None:
    spec = spec_of(pod_of(probe_of(exec_probe("check", failure_threshold=1), "m#p")))
    ((key, desired),) = desired_probes(spec).items()
    results = Results()
    publisher = StatePublisher(
        desired,
        results=results,
        series=ProbeSeries(key, desired.pod),
        recorded=None,
        on_transition=lambda _, __: None,
        now=lambda: NOON + timedelta(seconds=asyncio.get_running_loop().time()),
    )

    async def observe_after_a_second(state: ProbeState, message: str) -> float | None:
        await asyncio.sleep(1)
        publisher.observe(state, message)
        since = results.newest[key].last_transition_at
        return (since - NOON).total_seconds() if since else None

    good, bad = ProbeState.SUCCEEDED, ProbeState.FAILED
    observed = ((good, ""), (good, ""), (good, "new"), (bad, ""), (bad, ""), (good, ""))
    times = [await observe_after_a_second(state, message) for state, message in observed]
    assert times == [1, 1, 1, 4, 4, 6]
