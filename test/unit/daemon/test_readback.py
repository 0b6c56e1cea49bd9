from datetime import UTC, datetime
from typing import Any

import pytest

from kruise_probe.api.keys import ProbeKey, ProbeName
from kruise_probe.api.v1alpha1 import (
    ContainerProbeState,
    NodePodProbeStatus,
    PodProbeStatus,
    ProbeState,
)
from kruise_probe.daemon.readback import ReadbackMatch, readback_match, recorded_in, result_for
from kruise_probe.daemon.results import PublishedResult

KEY = ProbeKey("uid", "main", ProbeName("m", "p"))
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def status(*states: ContainerProbeState) -> NodePodProbeStatus:
    return NodePodProbeStatus((PodProbeStatus("pod", "default", "uid", states),))


def recorded(**fields: Any) -> ContainerProbeState:
    return ContainerProbeState("m#p", fields.pop("state", "Succeeded"), **fields)


def test_state_is_read_back_with_all_fields() -> None:
    kept = status(
        recorded(
            last_probe_time="2026-11-21T12:00:00Z",
            last_transition_time="2026-11-21T11:00:00Z",
            message="fine",
            container_id="c1",
            probe_hash="h1",
        )
    )
    assert PublishedResult(
        ProbeState.SUCCEEDED, "fine", "c1", "h1", NOON, NOON.replace(hour=11)
    ) == result_for(KEY, recorded_in(kept))


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(None, id="no-status"),
        pytest.param(NodePodProbeStatus(), id="empty-status"),
        pytest.param(status(recorded(state="Fine")), id="no-such-state"),
        pytest.param(status(ContainerProbeState("m#other", "Failed")), id="another-probe"),
    ],
)
def test_empty_status_gives_no_results(kept: NodePodProbeStatus | None) -> None:
    assert result_for(KEY, recorded_in(kept)) is None


def test_unreadable_times_are_absent() -> None:
    result = result_for(KEY, recorded_in(status(recorded(last_probe_time="yesterday"))))
    assert result is not None
    assert result.last_probe_at is None


@pytest.mark.parametrize(
    ("container_id", "probe_hash", "last_probe_at", "match"),
    [
        pytest.param("c1", "h1", None, ReadbackMatch.SAME, id="same-ids"),
        pytest.param("c0", "h1", NOON, ReadbackMatch.OTHER, id="the-id-decides-not-the-time"),
        pytest.param("c1", "h0", NOON, ReadbackMatch.EDITED, id="edited-while-no-daemon-ran"),
        pytest.param("", "", NOON, ReadbackMatch.SAME, id="kruises-crd-probed-after-the-start"),
        pytest.param(
            "", "", NOON.replace(hour=11), ReadbackMatch.OTHER, id="probed-before-the-start"
        ),
        pytest.param("", "", None, ReadbackMatch.OTHER, id="never-probed"),
        pytest.param("", "h0", NOON, ReadbackMatch.EDITED, id="hash-alone"),
    ],
)
def test_recorded_state_matches_container_and_probe(
    container_id: str, probe_hash: str, last_probe_at: datetime | None, match: ReadbackMatch
) -> None:
    result = PublishedResult(ProbeState.FAILED, "", container_id, probe_hash, last_probe_at, None)
    started_at = NOON.timestamp() + 0.4
    assert match is readback_match(
        result, container_id="c1", started_at=started_at, probe_hash="h1"
    )


def test_a_container_whose_start_is_not_known_is_another_one() -> None:
    result = PublishedResult(ProbeState.FAILED, "", "", "", NOON, None)
    match = readback_match(result, container_id="c1", started_at=None, probe_hash="h1")
    assert match is ReadbackMatch.OTHER
