"""The newest result of every probe of this node; reports changes.

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


class Change(IntEnum):
    """What changed in a result; the greater, the more urgent."""

    NOTHING = 0
    MESSAGE = 1
    STATE = 2


class Result(msgspec.Struct, frozen=True, gc=False):
    """The published result of one probe.

    Attributes:
        container_id: the container that was probed; empty when the state is not of a container.
        probe_hash: hash of the probe that gave the state; empty when unknown.
        last_probe_at: newest attempt whose result agrees with the state.
        last_transition_at: when `state` last changed.
    """

    state: ProbeState
    message: str
    container_id: str
    probe_hash: str
    last_probe_at: datetime | None
    last_transition_at: datetime | None


class Results:
    """Results by key. `newest` is a live view, not a copy.

    `on_change` is called after every change but NOTHING, synchronously; set it before the first `put`.
    """

    def __init__(self) -> None:
        self._results: dict[ProbeKey, Result] = {}
        self.on_change: Callable[[Change], None] = _ignore

    @property
    def newest(self) -> Mapping[ProbeKey, Result]:
        return self._results

    def get(self, key: ProbeKey) -> Result | None:
        return self._results.get(key)

    def restore(self, key: ProbeKey, result: Result) -> None:
        """Set a result that was read back; does not call `on_change`."""
        self._results[key] = result

    def put(self, key: ProbeKey, result: Result) -> Change:
        old = self._results.get(key)
        self._results[key] = result
        change = _change(old, result)
        if change:
            self.on_change(change)
        return change

    def remove(self, key: ProbeKey) -> None:
        """Remove the result of a probe that no longer runs."""
        if self._results.pop(key, None) is not None:
            self.on_change(Change.MESSAGE)


def _change(old: Result | None, new: Result) -> Change:
    if old is None or old.state is not new.state:
        return Change.STATE
    if old.message != new.message:
        return Change.MESSAGE
    if old.container_id != new.container_id or old.probe_hash != new.probe_hash:
        return Change.MESSAGE
    return Change.NOTHING


def _ignore(_: Change) -> None: ...
