"""`playground --check`: which states of which probes were observed completely.

A state is observed when the daemon has reported it, all links of `explain` have been OK at one time (so the pod had its
condition and marks), and the pod has an event for it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import Any, NamedTuple

from kruise_probe.api.names import EVENT_FAILED, EVENT_SUCCEEDED, ProbeName
from kruise_probe.inspection.snapshot import Snapshot
from kruise_probe.inspection.traces import traces_of
from kruise_probe_playground.ticker import PodEvent

KINDS = ("report", "marks", "event")
"""The visible effects of one state of a probe."""

MAX_NAMED = 4
"""Maximum of probes that a message names."""

EVENT_REASONS = {"Succeeded": EVENT_SUCCEEDED, "Failed": EVENT_FAILED}


class CheckedProbe(NamedTuple):
    """One probe of one pod."""

    namespace: str
    pod: str
    probe: ProbeName

    def shown(self, *, unique: bool) -> str:
        """`<pod>/<probe>`, or with the marker, because two markers can have a probe of the same name."""
        pod = self.pod if self.namespace == "default" else f"{self.namespace}/{self.pod}"
        return f"{pod}/{self.probe if unique else self.probe.probe}"


class Progress:
    """Collects the effects of all observations.

    Args:
        wanted: the number of states that each probe must have: two for the sample, whose states change, else one.
    """

    def __init__(self, *, wanted: int) -> None:
        self._wanted = wanted
        self._missing: dict[CheckedProbe, dict[str, set[str]]] = {}  # effects by state

    def observe(self, snapshot: Snapshot, events: Iterable[PodEvent]) -> None:
        """Note the effects in the current objects."""
        recorded = {
            (event.involved_object.uid, event.reason, event.message.partition(": ")[0])
            for event in events
        }
        for marker in snapshot.compiled.values():
            for seen in snapshot.pods_of(marker):
                for trace in traces_of(snapshot, seen, marker):
                    name = ProbeName(marker.key.name, trace.context.probe.name)
                    each = CheckedProbe(seen.namespace, seen.name, name)
                    states = self._missing.setdefault(
                        each, {state: set(KINDS) for state in EVENT_REASONS}
                    )
                    result = trace.context.result
                    if result and result.state in states:
                        states[result.state] -= {"report"} if trace.end else {"report", "marks"}
                    for state, reason in EVENT_REASONS.items():
                        if (seen.uid, reason, str(name)) in recorded:
                            states[state].discard("event")

    def _by_name(self) -> Mapping[str, Mapping[str, Set[str]]]:
        """What is missing, by the name of the probe in the output: the short one, unless two probes share it."""
        times = Counter(probe.shown(unique=False) for probe in self._missing)
        return {
            probe.shown(unique=times[probe.shown(unique=False)] > 1): states
            for probe, states in sorted(self._missing.items())
        }

    def seen(self) -> Mapping[str, list[str]]:
        """The observed states of each probe."""
        return {
            name: [state for state, kinds in states.items() if not kinds]
            for name, states in self._by_name().items()
        }

    @property
    def complete(self) -> bool:
        """Whether there is a probe, and each has the wanted number of states."""
        seen = self.seen().values()
        return bool(seen) and all(len(states) >= self._wanted for states in seen)

    def missing(self) -> str:
        """What is missing, in one line."""
        if not self._missing:
            return "no marker selects a pod; compare its selector with the labels of the pods"
        lacking = []
        for name, states in self._by_name().items():
            left = {state: kinds for state, kinds in states.items() if kinds}
            if len(states) - len(left) < self._wanted:
                details = (f"{state} has no {', '.join(sorted(left[state]))}" for state in left)
                lacking.append(f"{name} ({'; '.join(details)})")
        more = [f"and {len(lacking) - MAX_NAMED} more"] if len(lacking) > MAX_NAMED else []
        return "; ".join(
            [
                *lacking[:MAX_NAMED],
                *more,
            ]
        )

    def as_json(self, *, seconds: float) -> dict[str, Any]:
        """The output of `playground --check`."""
        return {
            "ok": self.complete,
            "seconds": round(seconds, 1),
            "pods": len({(probe.namespace, probe.pod) for probe in self._missing}),
            "probes": len(self._missing),
            "seen": self.seen(),
        }
