"""The newest published result of every probe of this node; reports changes.

Source: kubelet pkg/kubelet/prober/results/results_manager.go.
Differs: keyed by pod uid, container and probe. Kruise's key is the container id, so two probes of one container
overwrite each other. Changes of the state, changes of the message and repetitions are distinguished.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import IntEnum

import msgspec

from kruise_probe.api.keys import ProbeKey
from kruise_probe.api.v1alpha1 import ProbeState


class ResultChange(IntEnum):
    """What changed in a result; the greater, the more urgent."""

    NOTHING = 0
    MESSAGE = 1
    STATE = 2


class PublishedResult(msgspec.Struct, frozen=True, gc=False):
    """The published result of one probe.

    Attributes:
        container_id: the container that was probed; empty when the state is not of a container.
        probe_hash: hash of the probe that gave the state; empty when unknown.
        last_probe_at: when the newest attempt ended, or when the state became Unknown.
        last_transition_at: when `state` last changed.
    """

    state: ProbeState
    message: str
    container_id: str
    probe_hash: str
    last_probe_at: datetime | None
    last_transition_at: datetime | None


def next_result(
    old: PublishedResult | None, new: PublishedResult, *, probed: bool, confirmed: bool
) -> PublishedResult | None:
    """The result to publish after `old`; None if nothing changes.

    The transition time of `new` is used only if the state has changed.
    `probed`: an attempt has ended with a result. `confirmed`: the newest results confirm the state. Until then,
    container and probe hash stay those of the attempts that gave the state.
    """
    if old is None or old.state is not new.state:
        return new
    if confirmed or old.message != new.message:
        return PublishedResult(
            new.state,
            new.message,
            new.container_id,
            new.probe_hash,
            new.last_probe_at,
            old.last_transition_at,
        )
    if probed or new.state is ProbeState.UNKNOWN:
        return msgspec.structs.replace(old, last_probe_at=new.last_probe_at)
    return None


class Results:
    """Results by key. `newest` is a live view, not a copy.

    `on_change` is called after every change but NOTHING, synchronously; set it before the first `put`.
    """

    def __init__(self) -> None:
        self._results: dict[ProbeKey, PublishedResult] = {}
        self.on_change: Callable[[ResultChange], None] = _ignore

    @property
    def newest(self) -> Mapping[ProbeKey, PublishedResult]:
        return self._results

    def get(self, key: ProbeKey) -> PublishedResult | None:
        return self._results.get(key)

    def restore(self, key: ProbeKey, result: PublishedResult) -> None:
        """Set a result that was read back; does not call `on_change`."""
        self._results[key] = result

    def put(self, key: ProbeKey, result: PublishedResult) -> bool:
        """Store a new result. Returns whether the state changed."""
        old = self._results.get(key)
        self._results[key] = result
        change = _change(old, result)
        if change:
            self.on_change(change)
        return change is ResultChange.STATE

    def remove(self, key: ProbeKey) -> None:
        """Remove the result of a probe that no longer runs."""
        if self._results.pop(key, None) is not None:
            self.on_change(ResultChange.MESSAGE)


def _change(old: PublishedResult | None, new: PublishedResult) -> ResultChange:
    if old is None or old.state is not new.state:
        return ResultChange.STATE
    if (old.message, old.container_id, old.probe_hash) != (
        new.message,
        new.container_id,
        new.probe_hash,
    ):
        return ResultChange.MESSAGE
    return ResultChange.NOTHING


def _ignore(_: ResultChange) -> None: ...
