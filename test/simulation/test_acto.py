"""Acto's oracles: what an edit does is what its object says, and a revert brings back the state before."""

import asyncio

import pytest
from simulation.acto import BASE, PROPERTIES, Property, edited, schema_paths
from simulation.experiment import (
    change_and_revert,
    experimenting,
    kill_a_daemon,
)


def test_every_property_of_the_schema_is_changed() -> None:
    assert sorted(schema_paths()) == sorted(change.path for change in PROPERTIES)


@pytest.mark.parametrize("change", PROPERTIES, ids=[change.path for change in PROPERTIES])
def test_a_changed_property_takes_effect_and_reverts(change: Property) -> None:
    change_and_revert(change)


def test_a_sequence_of_edits_ends_as_its_last_one() -> None:
    with experimenting(2) as experiment:
        for change in PROPERTIES:
            experiment.put(edited(change, change.valid))
            experiment.loop.run_until_complete(asyncio.sleep(1.3))
        experiment.put(BASE)
        experiment.expect_state_before()


def test_results_of_a_dead_daemon_are_unknown_and_come_back() -> None:
    kill_a_daemon()
