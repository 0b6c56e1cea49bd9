"""The truth oracle: every condition and label on a pod says what is so, or that it is not known, with a true reason.

A *claim* is what a condition says: True, False, or the reason of an Unknown. Each second the oracle notes which claims
are true of each probe. Three rules hold:

1. A published claim was true within the last `window` seconds. Time during which one of `EXCEPTIONS` holds does not count.
2. A new reason is true when it is published.
3. 60 s after a daemon has stopped, conditions say so, or what the manager knows by itself (`KNOWN_TO_MANAGER`). Those of a
   probe with `whenStale: Keep` never say so.
4. What the manager knows by itself is published within `REACTION_SECONDS`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from simulation.applications import MARKER, Applications, Behaviour
from simulation.world import NODE_NAMES, World
from support.fake_runtime import FakeContainer
from support.wire import Json

from kruise_probe.api.names import PAUSED_ANNOTATION
from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, PODS
from kruise_probe.daemon.cri.runtime import ContainerState

STEP_SECONDS = 1.0
LEAST_GRACE_SECONDS = 30.0
STALE_SECONDS = 60.0
HOLD_SECONDS = 180.0
SILENCE_SLACK_SECONDS = 20.0
RENEWAL_SECONDS = 40.0
"""Longest time between a renewal of a Lease and the next one."""
REACTION_SECONDS = 10.0
"""Until the list of containers and both writes are done."""

TRUE = "True"
FALSE = "False"
STALE = "ProbeDaemonStale"
RESTARTED = "ContainerRestarted"
NO_RUNTIME = "RuntimeUnavailable"
ENDED = ("ContainerNotRunning", "ContainerNotCreated")
COMPLETED = "ContainerFinished"
FINISHED = "PodFinished"
PAUSED = "ProbePaused"
KNOWN_TO_MANAGER = (FINISHED, COMPLETED)
HANGS = "(the command hangs)"
VERDICTS = (TRUE, FALSE)
CLAIMS = (*VERDICTS, STALE, RESTARTED, NO_RUNTIME, *ENDED, *KNOWN_TO_MANAGER, PAUSED, HANGS)


@dataclass
class NodeTruth:
    """What holds on a node, in seconds.

    Attributes:
        silent: since the daemon stopped, while a manager leads.
        missed: as `silent`, by what the leading manager may count: since it began to lead, and since the node has entries.
        held: since the runtime is unavailable, while the daemon runs.
        connection: of the daemon's newest process, which may start and end between two looks.
        break_seconds: of the last break of the daemon; `started` is its end, in loop time.
    """

    works: bool = False
    silent: float = 0.0
    missed: float = 0.0
    has_entries: bool = False
    was_away: bool = False
    connection: object = None
    held: float = 0.0
    stopped: float = 0.0
    started: float = 0.0
    break_seconds: float = 0.0


@dataclass
class ProbeTruth:
    """What holds for one probe of one pod.

    Attributes:
        ages: by claim, counted seconds since it was true.
        seconds: by claim, all seconds since it was true.
        published: the newest claim; `reported` the newest one that is not the manager's own.
        blocked: for how long the daemon has seen no container.
        known: what the manager knows by itself; `known_seconds` for how long.
        resumed: since the end of a pause.
        seen: the container that runs or ran last.
    """

    ages: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CLAIMS, math.inf))
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CLAIMS, math.inf))
    published: str = ""
    reported: str = ""
    blocked: float = 0.0
    known: str = ""
    known_seconds: float = 0.0
    resumed: float = math.inf
    seen: str = ""
    was_running: bool = False

    def note(self, *claims: str) -> None:
        """They are true now."""
        for claim in claims:
            self.ages[claim] = 0.0
            self.seconds[claim] = 0.0


class ProbeCase:
    """One probe of one pod at one moment; `container` is the running one, if there is one."""

    def __init__(
        self,
        node: NodeTruth,
        truth: ProbeTruth,
        pod: Json,
        marker: Json,
        probe: Json,
        behaviour: Behaviour,
        container: FakeContainer | None,
        *,
        leads: bool,
    ) -> None:
        numbers = probe["probe"]
        self.node = node
        self.probe = truth
        self.leads = leads
        self.container = container
        self.terminating = "deletionTimestamp" in pod["metadata"]
        self.keeps = probe.get("whenTerminating") != "Probe"
        self.keeps_when_stale = probe.get("whenStale") == "Keep"
        self.paused = is_paused(pod) or is_paused(marker)
        self.end = _end_of(pod)
        self.known = self.end
        if self.paused:
            self.known = "" if self.end == FINISHED or self.terminating else PAUSED
        self.delay: float = numbers.get("initialDelaySeconds", 0)
        self.period: float = numbers["periodSeconds"]
        self.timeout: float = numbers["timeoutSeconds"]
        self.threshold: int = max(numbers["failureThreshold"], numbers["successThreshold"])
        self.grace: float = max(numbers["failureThreshold"] * self.period, LEAST_GRACE_SECONDS)
        answers = behaviour.seconds < self.timeout
        self.verdict = TRUE if behaviour.good and answers else FALSE
        self.hangs = not answers and probe["name"] == "exec"

    @property
    def after_long_break(self) -> bool:
        """Whether no daemon ran before this one for longer than the grace period of 4.7, by any sign of life."""
        return self.node.break_seconds > SILENCE_SLACK_SECONDS + self.grace

    @property
    def may_be_after_long_break(self) -> bool:
        """As `after_long_break`, by the oldest sign of life that the last daemon may have given."""
        return self.node.break_seconds > SILENCE_SLACK_SECONDS + self.grace - RENEWAL_SECONDS

    @property
    def window(self) -> float:
        """How long a claim may be published after it was true, in counted time."""
        return self.period * (self.stretch + self.threshold) + self.timeout + self.delay + 5.0

    @property
    def window_of_reasons(self) -> float:
        """As `window`, for the reason of an Unknown: each attempt until the threshold may be stretched (4.4)."""
        return self.window + self.period * self.threshold * (self.stretch - 1)

    @property
    def stretch(self) -> int:
        return 8 if self.probe.seconds[HANGS] < 600 else 1


EXCEPTIONS: dict[str, Callable[[ProbeCase], bool]] = {
    "no manager leads": lambda case: not case.leads,
    "3.6: no daemon; its results come back with it": lambda case: case.node.silent > 0,
    "4.3: three minutes of RuntimeUnavailable": lambda case: (
        0 < case.node.held <= HOLD_SECONDS + REACTION_SECONDS
    ),
    "4.3: the grace period of a container that does not run": lambda case: (
        0 < case.probe.blocked <= case.grace + REACTION_SECONDS
    ),
    "10.5: a pause": lambda case: case.paused,
    "10.11: whenTerminating: Keep": lambda case: case.terminating and case.keeps,
}
"""When the time of a published claim does not count. Beside them: 4.3, a new container and a new daemon begin to count
again (`Truth._begin_again`), and 3.3, labels stay under Unknown without a policy."""


class Truth:
    """Observes a world; `problems` has one line for each claim that is false."""

    def __init__(self, world: World, applications: Applications) -> None:
        self.problems: dict[str, str] = {}
        self.nodes = {name: NodeTruth() for name in NODE_NAMES}
        self.probes: dict[tuple[str, str], ProbeTruth] = {}
        self.leads = False
        self._world = world
        self._applications = applications
        self._managers: set[str] = set()
        self._without_marker = 0.0

    def step(self) -> None:
        """Look at everything; call it every `STEP_SECONDS`."""
        self._look_at_managers()
        for name, node in self.nodes.items():
            self._look_at_daemon(name, node)
        marker = self._world.get(MARKERS, MARKER)
        if marker and "deletionTimestamp" in marker["metadata"]:
            marker = None
        if not marker:
            self._without_marker += STEP_SECONDS * self.leads
        elif self._without_marker:
            self._count_missed_again()  # 11.11: from the first new entry
        for name, pod in self._world.objects(PODS).items():
            if marker:
                self._without_marker = 0.0
                for probe in marker["spec"]["probes"]:
                    self._look_at_probe(name, pod, marker, probe)
            elif self._without_marker > 2 * REACTION_SECONDS:
                self._look_for_marks(name, pod)

    def _report(self, kind: str, text: str) -> None:
        """Keep the first problem of each kind."""
        self.problems.setdefault(kind, f"{self._world.loop.time():.0f} s: {text}")

    def _look_at_managers(self) -> None:
        working = [manager for manager in self._world.managers if self._world.works(manager.name)]
        names = {manager.name for manager in working}
        if names - self._managers:
            self._count_missed_again()  # 3.6: from the first sign that a manager sees
        self._managers = names
        self.leads = any(manager.leads for manager in working)

    def _count_missed_again(self) -> None:
        for node in self.nodes.values():
            node.missed = 0.0

    def _look_at_daemon(self, name: str, node: NodeTruth) -> None:
        now = self._world.loop.time()
        daemon = self._world.processes[f"daemon-{name}"]
        worked = node.works
        node.works = self._world.works(daemon.name)
        away = bool(self._world.runtimes[name].failures)
        # A daemon may have started, and the runtime come back, since the last look.
        was_away = away or (node.was_away and not worked)
        node.was_away = away
        if node.works and not worked:
            node.break_seconds = now - node.stopped
            node.started = now
            node.held = 0.0
        ran_between = daemon.connection is not node.connection and not node.works
        node.connection = daemon.connection
        if ran_between or (worked and not node.works):
            node.stopped = now
        if ran_between:
            node.missed = 0.0
        if node.works:
            node.silent = node.missed = 0.0
            node.held = node.held + STEP_SECONDS if was_away else 0.0
        elif self.leads:
            node.silent += STEP_SECONDS
            node.missed += STEP_SECONDS
        had_entries = node.has_entries
        stored = self._world.get(NODE_POD_PROBES, name)
        node.has_entries = bool(stored and stored["spec"].get("podProbes"))
        if not had_entries:
            node.missed = 0.0  # 11.11: from the first new entry

    # One probe.

    def _look_at_probe(
        self,
        name: str,
        pod: Json,
        marker: Json,
        probe: Json,
    ) -> None:
        key = pod["metadata"]["uid"], probe["name"]
        is_new = key not in self.probes
        state = self.probes.setdefault(key, ProbeTruth())
        container = self._world.containers.get(name)
        if container and container.state is not ContainerState.RUNNING:
            container = None
        case = ProbeCase(
            self.nodes[pod["spec"]["nodeName"]],
            state,
            pod,
            marker,
            probe,
            self._applications.behaviour(name, probe["name"]),
            container,
            leads=self.leads,
        )
        if is_new:  # its container may have run and ended before this look
            state.ages[case.verdict] = 0.0
        self._look_at_container(case)
        self._look_at_pause(case)
        self._look_at_manager(case)
        claims = self._true_claims(case)
        counted = not any(holds(case) for holds in EXCEPTIONS.values())
        for claim in CLAIMS:
            state.ages[claim] += STEP_SECONDS * counted
            state.seconds[claim] += STEP_SECONDS
        state.note(*claims)
        self._check(
            case,
            f"{name} {probe['name']}",
            pod,
            probe,
        )

    def _look_at_container(self, case: ProbeCase) -> None:
        state = case.probe
        node = case.node
        container = case.container
        running = container is not None
        daemon_is_new = node.works and node.started == self._world.loop.time()
        replaced = container is not None and container.id != state.seen
        if daemon_is_new or replaced or running is not state.was_running:
            self._begin_again(case)
        if daemon_is_new and case.after_long_break and (replaced or not running):
            # 4.7: what was true before a reboot is not true of what runs now.
            state.ages[TRUE] = state.ages[FALSE] = case.window - REACTION_SECONDS
            state.blocked = case.grace
        if replaced:  # the one before may have ended since the last look
            state.note(*ENDED)
        if case.may_be_after_long_break and container:
            had_no_result = self._age_of(container) < node.break_seconds + case.window
            if replaced or (daemon_is_new and had_no_result):
                state.note(RESTARTED)
        if running or (daemon_is_new and not case.after_long_break):
            state.blocked = 0.0
        elif node.works and not node.held:
            state.blocked += STEP_SECONDS
        if container and node.works and not node.held:
            state.seen = container.id
        state.was_running = running

    def _look_at_pause(self, case: ProbeCase) -> None:
        """After a pause a probe begins again, as a new one does (10.5)."""
        state = case.probe
        state.resumed += STEP_SECONDS
        if case.paused:
            self._begin_again(case)
            state.resumed = 0.0

    def _look_at_manager(self, case: ProbeCase) -> None:
        state = case.probe
        state.known_seconds += STEP_SECONDS
        if case.known != state.known or not case.leads:
            state.known_seconds = 0.0
        state.known = case.known

    def _begin_again(self, case: ProbeCase) -> None:
        """A new container or daemon counts results from the beginning; the state is kept meanwhile (4.3, 4.7)."""
        for claim, age in case.probe.ages.items():
            if age <= case.window:
                case.probe.ages[claim] = 0.0

    def _true_claims(self, case: ProbeCase) -> list[str]:
        claims = []
        if case.container:
            claims.append(case.verdict)
            if case.hangs:
                claims.append(HANGS)
            if self._age_of(case.container) <= case.delay:
                claims.append(RESTARTED)
        else:
            claims.extend(ENDED)
        if not case.keeps_when_stale and case.node.silent > STALE_SECONDS - RENEWAL_SECONDS:
            claims.append(STALE)
        if case.node.held:
            claims.append(NO_RUNTIME)
        if case.end:
            claims.append(case.end)
        if case.paused:
            claims.append(PAUSED)
        return claims

    def _age_of(self, container: FakeContainer) -> float:
        assert container.started_at
        return (self._world.clock() - container.started_at).total_seconds()

    def _check(
        self,
        case: ProbeCase,
        where: str,
        pod: Json,
        probe: Json,
    ) -> None:
        state = case.probe
        condition = _condition(pod, probe["podConditionType"])
        if condition is None:
            return
        claim = _claim_of(condition)
        text = f"{where} says {claim} ({condition.get('message', '')[:80]})"
        age = state.ages.get(claim, math.inf)
        window = case.window if claim in VERDICTS else case.window_of_reasons
        if age > window:
            self._report(f"{claim} too long", f"{text}, which was true {age:g} s ago")
        if self._must_be_stale(case) and claim not in (STALE, *KNOWN_TO_MANAGER):
            self._report(f"{claim} without daemon", f"{text}, the daemon stopped long ago")
        known_too_long = state.known_seconds > REACTION_SECONDS
        if case.known and known_too_long and claim != case.known:
            self._report(f"{claim} instead of {case.known}", f"{text}, which the manager knows")
        seconds = state.seconds.get(claim, math.inf)
        is_new = claim not in (state.published, state.reported, *VERDICTS)
        is_late = seconds > REACTION_SECONDS + case.period
        if is_new and is_late and case.leads:
            self._report(f"{claim} without cause", f"{text}, which was true {seconds:g} s ago")
        if claim not in (STALE, PAUSED, *KNOWN_TO_MANAGER):
            state.reported = claim
        state.published = claim
        self._check_label(where, pod, probe, condition)

    def _must_be_stale(self, case: ProbeCase) -> bool:
        return (
            case.probe.resumed > REACTION_SECONDS
            and case.node.missed > STALE_SECONDS + REACTION_SECONDS
            and not case.keeps_when_stale
        )

    def _check_label(
        self,
        where: str,
        pod: Json,
        probe: Json,
        condition: Json,
    ) -> None:
        status = condition["status"]
        state = {TRUE: "Succeeded", FALSE: "Failed"}.get(status, "Unknown")
        for policy in probe["markerPolicy"]:
            if policy["state"] != state:
                continue  # 3.3: without a policy for Unknown labels stay
            for key, value in policy["labels"].items():
                found = pod["metadata"]["labels"].get(key)
                if found != value:
                    self._report("label", f"{where} is {status}, its label is {found}")

    def _look_for_marks(self, name: str, pod: Json) -> None:
        marks = [condition["type"] for condition in pod["status"]["conditions"]]
        marks.extend(pod["metadata"]["labels"])
        left = [mark for mark in marks if mark.startswith(("c/", "l-"))]
        if left:
            self._report("marks of a deleted marker", f"{name} has {left}")


def is_paused(wire: Json) -> bool:
    annotations: Json = wire["metadata"].get("annotations", {})
    return annotations.get(PAUSED_ANNOTATION) == "true"


def _end_of(pod: Json) -> str:
    """Which end of the pod or of its container its status shows; empty if none."""
    if pod["status"]["phase"] in ("Succeeded", "Failed"):
        return FINISHED
    for container in pod["status"].get("containerStatuses", []):
        if "terminated" in container.get("state", {}):
            return COMPLETED
    return ""


def _condition(pod: Json, kind: str) -> Json | None:
    conditions = pod["status"]["conditions"]
    return next((condition for condition in conditions if condition["type"] == kind), None)


def _claim_of(condition: Json) -> str:
    reason = condition.get("reason")
    if condition["status"] != "Unknown" and reason != PAUSED:
        return str(condition["status"])
    return str(reason or condition.get("message", "").partition(":")[0])
