"""`playground --check`: which states of which probes were observed completely.

A state is observed when the daemon has reported it, all links of `explain` have been OK at one time (so the pod had its
condition and marks), and the pod has an event for it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kruise_probe.api.keys import ProbeName
from kruise_probe.api.names import EVENT_FAILED, EVENT_SUCCEEDED
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.inspection.snapshot import Snapshot
from kruise_probe.inspection.traces import traces_of
from kruise_probe_playground.ticker import PodEvent

KINDS = ("report", "marks", "event")
MAX_NAMED = 4
"""Maximum of probes that a message names."""

STATES = (ProbeState.SUCCEEDED, ProbeState.FAILED)

_EVENT_REASON = {ProbeState.SUCCEEDED: EVENT_SUCCEEDED, ProbeState.FAILED: EVENT_FAILED}


class CheckedProbe(NamedTuple):
    """One probe of one pod."""

    namespace: str
    pod: str
    probe: ProbeName

    def shown(self, *, unique: bool) -> str:
        """`<pod>/<probe>`, or with the marker, because two markers can have a probe of the same name."""
        pod = self.pod if self.namespace == "default" else f"{self.namespace}/{self.pod}"
        return f"{pod}/{self.probe if unique else self.probe.probe}"


class Evidence(NamedTuple):
    """A visible effect of one state of a probe; `kind` is one of `KINDS`."""

    probe: CheckedProbe
    state: str
    kind: str


class Progress:
    """Collects the evidence of all observations.

    Args:
        wanted: the number of states that each probe must have: two for the sample, whose states change, else one.
    """

    def __init__(self, *, wanted: int) -> None:
        self._wanted = wanted
        self._probes: set[CheckedProbe] = set()
        self._evidence: set[Evidence] = set()

    def observe(self, snapshot: Snapshot, events: Iterable[PodEvent]) -> None:
        """Add the evidence in the current objects."""
        recorded = {
            (each.involved_object.uid, each.reason, each.message.partition(": ")[0])
            for each in events
        }
        for marker in snapshot.compiled.values():
            for seen in snapshot.pods_of(marker):
                for trace in traces_of(snapshot, seen, marker):
                    name = ProbeName(marker.key.name, trace.context.probe.name)
                    each = CheckedProbe(seen.namespace, seen.name, name)
                    self._probes.add(each)
                    if result := trace.context.result:
                        kinds = ("report",) if trace.end else ("report", "marks")
                        self._evidence |= {Evidence(each, result.state, kind) for kind in kinds}
                    for state, reason in _EVENT_REASON.items():
                        if (seen.uid, reason, str(name)) in recorded:
                            self._evidence.add(Evidence(each, state, "event"))

    def seen(self) -> Mapping[CheckedProbe, list[str]]:
        """The observed states of each probe."""
        return {
            each: [state.value for state in STATES if not self._missing(each, state)]
            for each in sorted(self._probes)
        }

    def _names(self) -> Mapping[CheckedProbe, str]:
        """The name of each probe in the output: the short one, unless two probes share it."""
        times = Counter(each.shown(unique=False) for each in self._probes)
        return {
            each: each.shown(unique=times[each.shown(unique=False)] > 1) for each in self._probes
        }

    @property
    def complete(self) -> bool:
        """Whether there is a probe, and each has the wanted number of states."""
        seen = self.seen().values()
        return bool(seen) and all(len(states) >= self._wanted for states in seen)

    def missing(self) -> str:
        """What is missing, in one line."""
        if not self._probes:
            return "no marker selects a pod; compare its selector with the labels of the pods"
        names = self._names()
        without_result, lacking = 0, []
        for each, states in self.seen().items():
            if len(states) >= self._wanted:
                continue
            others = {state: self._missing(each, state) for state in STATES if state not in states}
            if all("report" in lacks for lacks in others.values()) and not states:
                without_result += 1
            else:
                detail = (
                    f"{state} has no {' and no '.join(lacks)}" for state, lacks in others.items()
                )
                lacking.append(f"{names[each]} ({', '.join(detail)})")
        if without_result:
            lacking.insert(0, f"{without_result} of {len(self._probes)} probes have no result")
        more = [f"and {len(lacking) - MAX_NAMED} more"] if len(lacking) > MAX_NAMED else []
        return "; ".join([*lacking[:MAX_NAMED], *more])

    def as_json(self, *, seconds: float) -> dict[str, Any]:
        """The output of `playground --check`."""
        names = self._names()
        return {
            "ok": self.complete,
            "seconds": round(seconds, 1),
            "pods": len({(each.namespace, each.pod) for each in self._probes}),
            "probes": len(self._probes),
            "seen": {names[each]: states for each, states in self.seen().items()},
        }

    def _missing(self, probe: CheckedProbe, state: ProbeState) -> list[str]:
        return [kind for kind in KINDS if Evidence(probe, state, kind) not in self._evidence]
