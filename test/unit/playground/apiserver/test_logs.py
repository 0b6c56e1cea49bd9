"""Whose log a request reads."""

from typing import Any

import pytest

from kruise_probe_playground.apiserver.failures import Failure
from kruise_probe_playground.apiserver.logs import container_id

RUNNING = {
    "name": "a",
    "containerID": "playground://now",
    "state": {"running": {}},
    "lastState": {},
}
ENDED = {"terminated": {"containerID": "playground://before"}}
WAITING = {"name": "a", "state": {"waiting": {"reason": "ContainerCreating"}}, "lastState": {}}


@pytest.mark.parametrize(
    ("written", "previous", "expected"),
    [
        pytest.param(RUNNING, False, "now", id="running"),
        pytest.param(RUNNING | {"lastState": ENDED}, False, "now", id="running-again"),
        pytest.param(RUNNING | {"lastState": ENDED}, True, "before", id="previous"),
        pytest.param(RUNNING, True, 'previous terminated container "a" in pod "web" not found', id="no-previous"),
        pytest.param(WAITING, False, 'container "a" in pod "web" is waiting to start: ContainerCreating', id="waiting"),
        pytest.param(WAITING | {"lastState": ENDED}, False, "before", id="backs-off"),
        pytest.param({"name": "b"}, False, 'container "a" in pod "web" is not available', id="no-status"),
    ],
)  # fmt: skip
def test_log_is_of_the_container_that_the_status_names(
    written: Any, previous: bool, expected: str
) -> None:
    try:
        found = container_id("web", {"containerStatuses": [written]}, "a", previous=previous)
    except Failure as failure:
        found = failure.status["message"]
    assert found == expected
