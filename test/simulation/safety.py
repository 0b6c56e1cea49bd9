"""Oracle (d): what must hold at every step, whatever fails."""

import re

from simulation.looks import OURS, condition_owners, states
from simulation.network import WRITES, Sent
from simulation.world import DAEMONS, MANAGERS, Commit, World
from support.wire import Json

from kruise_probe.api.resources import MARKERS, PODS

MARKS = re.compile("(?!app$)[la]")
"""Labels and annotations of the markers; pods have the label `app`."""


class Safety:
    """Observes a world; `problems` has one line for each violation, `writes` every writing request but those of Leases."""

    def __init__(self, world: World) -> None:
        self.problems: list[str] = []
        self.writes: list[Sent] = []
        self._world = world
        self._succeeded: set[tuple[str, str]] = set()
        self._conditions: dict[str, set[str]] = {}
        world.on_send = self.sent
        world.on_commit = self.check

    def _report(self, problem: str) -> None:
        self.problems.append(f"{self._world.loop.time():.3f} {problem}")

    def sent(self, sent: Sent) -> None:
        """Only the leader writes, and no request lists at resource version 0, which a server may answer with an old state."""
        process = sent.process
        if sent.verb in ("list", "watch") and sent.version == "0":
            self._report(f"{process} reads {sent.resource} at version 0")
        if sent.verb not in WRITES or sent.resource == "leases":
            return
        self.writes.append(sent)
        for manager in self._world.managers:
            if process in MANAGERS and process != manager.name and manager.leads:
                self._report(f"{process} writes {sent.resource} while {manager.name} leads")

    def check(self, commit: Commit) -> None:
        old = commit.old or {}
        new = commit.new or {}
        if commit.resource == "nodepodprobes":
            self._note_results(new)
        if commit.resource == "podprobemarkers" and new:
            self._note_conditions(new)
        if commit.writer in DAEMONS:
            self._check_daemon(commit, old, new)
        elif commit.writer in MANAGERS:
            self._check_manager(commit, old, new)

    def _note_results(self, plan: Json) -> None:
        for uid, state in states(plan):
            if state["state"] == "Succeeded":
                self._succeeded.add((uid, state["name"]))

    def _note_conditions(self, marker: Json) -> None:
        for condition, probe in condition_owners(marker):
            self._conditions.setdefault(condition, set()).add(probe)

    def _check_daemon(self, commit: Commit, old: Json, new: Json) -> None:
        if commit.resource == "leases":
            return
        if commit.resource != "nodepodprobes" or not new or not old:
            self._report_write(commit, f"{commit.resource} {commit.name}")
        elif old.get("spec") != new.get("spec"):
            self._report_write(commit, f"the spec of {commit.name}")

    def _check_manager(self, commit: Commit, old: Json, new: Json) -> None:
        if commit.resource == "nodes":
            self._report_write(commit, f"node {commit.name}")
        elif commit.resource == "nodepodprobes" and old and new:
            if old.get("status") != new.get("status"):
                self._report_write(commit, f"the status of {commit.name}")
        elif commit.resource == "podprobemarkers" and old:
            self._check_marker(commit, old, new)
        elif commit.resource == "pods":
            self._check_pod(commit, old, new)

    def _report_write(self, commit: Commit, what: str) -> None:
        self._report(f"{commit.writer} writes {what}")

    def _check_marker(self, commit: Commit, old: Json, new: Json) -> None:
        if new:
            if old["spec"] != new["spec"]:
                self._report_write(commit, f"the spec of marker {commit.name}")
            return
        dropped = {kind for kind, _ in condition_owners(old)}
        for marker in self._world.objects(MARKERS).values():
            dropped -= {kind for kind, _ in condition_owners(marker)}
        for name, pod in self._world.objects(PODS).items():
            for condition in pod["status"]["conditions"]:
                kind = condition["type"]
                if kind in dropped and condition.get("reason") != "ProbeRemoved":
                    self._report(f"marker {commit.name} is gone, and pod {name} has {kind}")

    def _check_pod(self, commit: Commit, old: Json, new: Json) -> None:
        if not old or not new or old["spec"] != new["spec"]:
            self._report_write(commit, f"pod {commit.name} or its spec")
            return
        after = _conditions(new)
        for kind in _changed(_conditions(old), after):
            if not kind.startswith(OURS):
                self._report_write(commit, f"condition {kind} of pod {commit.name}")
            elif kind in after and after[kind]["status"] == "True":
                uid = new["metadata"]["uid"]
                if not self._has_succeeded(uid, kind):
                    self._report(
                        f"{kind} of pod {commit.name} is True, and no result was Succeeded"
                    )
        for part in ("labels", "annotations"):
            changed = _changed(old["metadata"].get(part), new["metadata"].get(part))
            foreign = [key for key in changed if not MARKS.match(key)]
            if foreign:
                self._report_write(commit, f"{part} {foreign} of pod {commit.name}")

    def _has_succeeded(self, uid: str, condition: str) -> bool:
        """Whether a probe with this condition type was ever Succeeded on the pod."""
        probes = self._conditions.get(condition, ())
        return any((uid, probe) in self._succeeded for probe in probes)


def _conditions(pod: Json) -> Json:
    conditions = pod["status"].get("conditions") or []
    return {condition["type"]: condition for condition in conditions}


def _changed(before: Json | None, after: Json | None) -> list[str]:
    """The keys whose values differ."""
    old = before or {}
    new = after or {}
    return [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
