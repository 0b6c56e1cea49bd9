"""Oracle (d): what must hold at every step, whatever fails."""

from simulation.looks import OURS
from simulation.network import WRITES, Sent
from simulation.world import DAEMONS, MANAGERS, Commit, World
from support.wire import Json

from kruise_probe.api.resources import MARKERS, PODS


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
        if sent.verb in ("list", "watch") and sent.version == "0":
            self._report(f"{sent.process} reads {sent.resource} at version 0")
        if sent.verb not in WRITES or sent.resource == "leases":
            return
        self.writes.append(sent)
        if sent.process not in MANAGERS:
            return
        for manager in self._world.managers:
            if manager.name != sent.process and manager.leads:
                self._report(f"{sent.process} writes {sent.resource} while {manager.name} leads")

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
        status = plan.get("status") or {}
        for pod in status.get("podProbeStatuses") or ():
            uid = pod["uid"]
            for state in pod.get("probeStates") or ():
                if state["state"] == "Succeeded":
                    name = state["name"]
                    self._succeeded.add((uid, name))

    def _note_conditions(self, marker: Json) -> None:
        marker_name = marker["metadata"]["name"]
        for probe in marker["spec"]["probes"]:
            condition = probe.get("podConditionType")
            if condition:
                probe_name = probe["name"]
                names = self._conditions.setdefault(condition, set())
                names.add(f"{marker_name}#{probe_name}")

    def _check_daemon(self, commit: Commit, old: Json, new: Json) -> None:
        if commit.resource == "leases":
            return
        if commit.resource != "nodepodprobes" or not new or not old:
            self._report(f"{commit.writer} writes {commit.resource} {commit.name}")
        elif old.get("spec") != new.get("spec"):
            self._report(f"{commit.writer} writes the spec of {commit.name}")

    def _check_manager(self, commit: Commit, old: Json, new: Json) -> None:
        if commit.resource == "nodes":
            self._report(f"{commit.writer} writes node {commit.name}")
        elif commit.resource == "nodepodprobes" and old and new:
            if old.get("status") != new.get("status"):
                self._report(f"{commit.writer} writes the status of {commit.name}")
        elif commit.resource == "podprobemarkers" and old:
            self._check_marker(commit, old, new)
        elif commit.resource == "pods":
            self._check_pod(commit, old, new)

    def _check_marker(self, commit: Commit, old: Json, new: Json) -> None:
        if new:
            if old["spec"] != new["spec"]:
                self._report(f"{commit.writer} writes the spec of marker {commit.name}")
            return
        dropped = _condition_types(old)
        markers = self._world.objects(MARKERS)
        for marker in markers.values():
            dropped -= _condition_types(marker)
        pods = self._world.objects(PODS)
        for name, pod in pods.items():
            for condition in pod["status"]["conditions"]:
                kind = condition["type"]
                if kind in dropped and condition.get("reason") != "ProbeRemoved":
                    self._report(f"marker {commit.name} is gone, and pod {name} has {kind}")

    def _check_pod(self, commit: Commit, old: Json, new: Json) -> None:
        if not old or not new or old["spec"] != new["spec"]:
            self._report(f"{commit.writer} writes pod {commit.name} or its spec")
            return
        before = _conditions(old)
        after = _conditions(new)
        for kind in sorted(before.keys() | after.keys()):
            if before.get(kind) == after.get(kind):
                continue
            if not kind.startswith(OURS):
                self._report(f"{commit.writer} writes condition {kind} of pod {commit.name}")
            elif kind in after and after[kind]["status"] == "True":
                uid = new["metadata"]["uid"]
                if not self._has_succeeded(uid, kind):
                    self._report(
                        f"{kind} of pod {commit.name} is True, and no result was Succeeded"
                    )
        for part in ("labels", "annotations"):
            foreign = _changed_by_others(old["metadata"], new["metadata"], part)
            if foreign:
                self._report(f"{commit.writer} writes {part} {foreign} of pod {commit.name}")

    def _has_succeeded(self, uid: str, condition: str) -> bool:
        """Whether a probe with this condition type was ever Succeeded on the pod."""
        probes = self._conditions.get(condition, ())
        return any((uid, probe) in self._succeeded for probe in probes)


def _condition_types(marker: Json) -> set[str]:
    found = set()
    for probe in marker["spec"]["probes"]:
        condition = probe.get("podConditionType")
        if condition:
            found.add(condition)
    return found


def _conditions(pod: Json) -> dict[str, Json]:
    conditions = pod["status"].get("conditions") or []
    return {condition["type"]: condition for condition in conditions}


def _changed_by_others(old: Json, new: Json, part: str) -> list[str]:
    """The changed labels or annotations that no marker of the simulation has: theirs begin with `l` or `a`."""
    before = old.get(part) or {}
    after = new.get(part) or {}
    found = []
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) == after.get(key):
            continue
        is_ours = key.startswith(("l", "a")) and key != "app"
        if not is_ours:
            found.append(key)
    return found
