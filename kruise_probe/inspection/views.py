"""The format of `status -o json`, and the base of the structs for `-o json` of other commands.

While `version` is the same, fields may be added, but no field is renamed, removed or changed in meaning.
"""

from typing import Final

import msgspec

from kruise_probe.api.meta import Condition

JSON_VERSION: Final = 1
PENDING: Final = "Pending"
"""The state of a probe that has no result yet."""


class JsonView(msgspec.Struct, frozen=True, rename="camel"):
    """Base of the structs for `-o json`: every field is always printed."""


class SnapshotView(JsonView, frozen=True, kw_only=True):
    """Base of the formats: what the objects of one time show. `notes` say what is unknown, or has no effect."""

    version: int = JSON_VERSION
    time: str
    notes: list[str]


class ProblemView(JsonView, frozen=True):
    """`severity` is `broken` or `waiting`; `link` is the link of the trace; pod and probe may be empty."""

    severity: str
    link: str
    reason: str
    message: str
    remedy: str
    pod: str = ""
    probe: str = ""
    node: str = ""


class ProbeView(JsonView, frozen=True):
    """A probe of the marker, with effective numbers."""

    name: str
    container_name: str
    check: str
    initial_delay_seconds: int
    period_seconds: int
    timeout_seconds: int
    success_threshold: int
    failure_threshold: int
    pod_condition_type: str


class ResultView(JsonView, frozen=True):
    """The newest result; `state` is Succeeded, Failed, Unknown or Pending, times are RFC 3339 or empty.

    `labels` and `annotations` are those of the pod that this probe owns. `outdated`: the result is that of the probe
    before its last edit. `notWritten` are values of its keys that no result wrote, such as those of a backup or a template.
    `remedy`: what to do about a result whose cause is known, such as a port that nothing listens on.
    """

    probe: str
    state: str
    since: str
    last_probe_time: str
    message: str
    labels: dict[str, str]
    annotations: dict[str, str]
    outdated: bool
    not_written: dict[str, str]
    remedy: str = ""


class PodView(JsonView, frozen=True):
    name: str
    uid: str
    node: str
    phase: str
    results: list[ResultView]
    labels: dict[str, str]
    annotations: dict[str, str]


class RoleView(JsonView, frozen=True):
    """A role of an exclusive probe. `group` is the label of its pods, or empty; `holders` is empty if no pod has it.

    `since` is when the holder became Succeeded, `epoch` what it published; `heldOff` are other pods that are Succeeded.
    """

    probe: str
    role: str
    group: str
    holders: list[str]
    since: str
    held_off: list[str]
    epoch: int | None


class CountsView(JsonView, frozen=True):
    """Probed pods by state. A pod is failed if any probe is Failed, succeeded if all are, otherwise unknown.

    Of the unknown pods, those are `pending` that have no Unknown probe: they wait for a first result.
    """

    pods: int
    succeeded: int
    failed: int
    unknown: int
    pending: int = 0


class MarkerView(JsonView, frozen=True):
    namespace: str
    name: str
    selector: str
    counts: CountsView
    conditions: list[Condition]
    probes: list[ProbeView]
    pods: list[PodView]
    problems: list[ProblemView]
    roles: list[RoleView]


class StatusView(SnapshotView, frozen=True, kw_only=True):
    """`counts` has each pod once, with the probes of all markers."""

    counts: CountsView
    markers: list[MarkerView]
