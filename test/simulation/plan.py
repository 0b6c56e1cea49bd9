"""Plans of simulations: which edits and faults happen when. A plan is made from a seed."""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from simulation import applications, edits, faults
from simulation.applications import HANDLERS, HANG
from simulation.world import (
    APPS,
    DAEMONS,
    MANAGERS,
    MARKER_NAMES,
    NODE_NAMES,
    POD_NAMES,
    PROBE_NAMES,
    PROCESSES,
    World,
)

EDITING_SECONDS = 40.0
STEADY_AT_SECONDS = 160.0
"""Faults of a steady plan begin then: after its edits and the longest wait that they can cause."""

LONGEST_FAULT_SECONDS = 30.0


class PlanStep(NamedTuple):
    """`name` is a function of `edits` or `faults`, called with a world and `arguments` at virtual second `at`."""

    at: float
    name: str
    arguments: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.arguments))})"

    def apply(self, world: World) -> None:
        world.note("plan", str(self))
        ACTIONS[self.name].apply(world, *self.arguments)


class SimulationPlan(NamedTuple):
    """`seed` also decides the order of ready tasks and the latencies; so a plan and its seed are one run.

    A plan is steady if its faults come after all edits have taken effect.
    """

    seed: int
    steps: tuple[PlanStep, ...]
    steady: bool = False

    def __str__(self) -> str:
        return "\n".join(f"  {each.at:7.3f} {each}" for each in self.steps)


def _put_marker(random: Random) -> tuple[Any, ...]:
    return random.choice(MARKER_NAMES), random.randrange(10_000)


def _outcome(random: Random) -> tuple[Any, ...]:
    command = f"{random.choice(MARKER_NAMES)}-{random.choice(PROBE_NAMES)}"
    output = random.choice(["fine", "bad", "foo", "a b", ""])
    return random.choice(POD_NAMES), command, random.choice([0, 1]), output


def _overwriting(random: Random) -> tuple[Any, ...]:
    part = random.choice(["labels", "annotations"])
    return (
        random.choice(POD_NAMES),
        part,
        f"{part[0]}{random.choice('123')}",
        random.choice(["?", None]),
    )


def _pause(random: Random) -> tuple[Any, ...]:
    kind = random.choice(["pod", "marker"])
    names = POD_NAMES if kind == "pod" else MARKER_NAMES
    return kind, random.choice(names), random.choice(["true", "true", None])


class Action(NamedTuple):
    """An edit or a fault: its weight among the others, and its random arguments."""

    apply: Callable[..., None]
    weight: int
    arguments: Callable[[Random], tuple[Any, ...]]


def _by_name(*actions: Action) -> dict[str, Action]:
    return {each.apply.__name__: each for each in actions}


EDITS = _by_name(
    Action(edits.put_marker, 6, _put_marker),
    Action(edits.set_outcome, 6, _outcome),
    Action(edits.drop_marker, 2, lambda r: (r.choice(MARKER_NAMES),)),
    Action(edits.label, 2, lambda r: (r.choice(POD_NAMES), r.choice(APPS))),
    Action(edits.replace_pod, 2, lambda r: (r.choice(POD_NAMES), r.choice(NODE_NAMES))),
    Action(edits.restart_container, 2, lambda r: (r.choice(POD_NAMES), r.choice([0.0, 2.0, 35.0]))),
    Action(edits.pause, 1, _pause),
    Action(edits.terminate_pod, 1, lambda r: (r.choice(POD_NAMES), r.choice([0.1, 5.0, 25.0]))),
    Action(
        edits.delay_initialization, 1, lambda r: (r.choice(POD_NAMES), r.choice([0.1, 5.0, 25.0]))
    ),
    Action(edits.move_ip, 1, lambda r: (r.choice(POD_NAMES), f"127.1.1.{r.randrange(1, 9)}")),
    Action(edits.overwrite_mark, 1, _overwriting),
    Action(edits.empty_plan, 1, lambda r: (r.choice(NODE_NAMES),)),
    Action(edits.delete_plan, 1, lambda r: (r.choice(NODE_NAMES),)),
    Action(edits.recreate_node, 1, lambda r: (r.choice(NODE_NAMES), r.choice([0.0, 1.0, 20.0]))),
    Action(edits.delete_lease, 1, lambda r: (r.choice(NODE_NAMES),)),
    Action(edits.age_lease, 1, lambda r: (r.choice(NODE_NAMES),)),
)


def _seconds(random: Random) -> float:
    return round(random.choice([0.1, 1.0, 5.0, 15.0, LONGEST_FAULT_SECONDS]) * random.random(), 3)


def _chances(random: Random) -> tuple[float, ...]:
    """Each kind of fault is used in a third of the disturbances."""
    loss, answer, repeat, refuse, slow = (
        random.choice([0.0, 0.0, random.choice([0.05, 0.2, 0.5])]) for _ in range(5)
    )
    return loss, answer, repeat, refuse, slow, random.choice([0.05, 1.0, 12.0])


FAULTS = _by_name(
    Action(faults.kill, 5, lambda r: (r.choice(PROCESSES), _seconds(r))),
    Action(faults.terminate, 2, lambda r: (r.choice(PROCESSES), _seconds(r))),
    Action(faults.stop, 2, lambda r: (r.choice(PROCESSES), _seconds(r))),
    Action(faults.sever, 3, lambda r: (r.choice(PROCESSES), _seconds(r), r.choice([True, False]))),
    Action(faults.cut_streams, 2, lambda r: (r.choice(PROCESSES),)),
    Action(faults.disturb, 5, lambda r: (r.choice(PROCESSES), _seconds(r) + 5, _chances(r))),
    Action(faults.lag, 2, lambda r: (r.choice([0, 1]), _seconds(r))),
    Action(faults.connect, 2, lambda r: (r.choice(PROCESSES), r.choice([0, 1]))),
    Action(faults.skew, 2, lambda r: (r.choice([*MANAGERS, *DAEMONS]), round(r.uniform(-4, 4), 3))),
    Action(faults.lose_runtime, 1, lambda r: (r.choice(NODE_NAMES), _seconds(r))),
    Action(faults.expire, 1, lambda r: ()),
)

LONG_BREAKS = (1.0, 20.0, 45.0, 200.0, 330.0)


def _pod(random: Random) -> str:
    return random.choice(POD_NAMES)


def _process_and_break(random: Random, processes: tuple[str, ...] = DAEMONS) -> tuple[Any, ...]:
    return random.choice(processes), random.choice(LONG_BREAKS)


def _pause_application(random: Random) -> tuple[Any, ...]:
    value = random.choice(["true", "true", None])
    pod = ("pod", _pod(random), value)
    return random.choice([pod, pod, ("marker", applications.MARKER, value)])


def _behaviour(random: Random) -> tuple[Any, ...]:
    seconds = random.choice([0.01, 0.01, 0.9, 1.5, HANG])
    return _pod(random), random.choice(list(HANDLERS)), random.choice([True, False]), seconds


APPLICATION_ACTIONS = _by_name(
    Action(applications.behave, 30, _behaviour),
    Action(applications.finish_pod, 4, lambda r: (_pod(r), r.choice(["Succeeded", "Failed"]))),
    Action(applications.complete_container, 4, lambda r: (_pod(r),)),
    Action(edits.pause, 4, _pause_application),
    Action(applications.reboot, 3, lambda r: (r.choice(NODE_NAMES), r.choice(LONG_BREAKS), 60.0)),
    Action(applications.lose_daemon_and_lease, 2, lambda r: (r.choice(NODE_NAMES), 330.0)),
    Action(applications.crowd, 2, lambda r: (_pod(r),)),
    Action(applications.put_application_marker, 2, lambda r: (r.randrange(10_000),)),
    Action(edits.drop_marker, 1, lambda r: (applications.MARKER,)),
    Action(
        edits.restart_container, 8, lambda r: (_pod(r), r.choice([0.0, 2.0, 20.0, 45.0, 330.0]))
    ),
    Action(edits.replace_pod, 3, lambda r: (_pod(r), r.choice(NODE_NAMES))),
    Action(edits.terminate_pod, 2, lambda r: (_pod(r), r.choice([5.0, 90.0]))),
    Action(faults.kill, 3, _process_and_break),
    Action(faults.terminate, 6, _process_and_break),
    Action(faults.stop, 2, _process_and_break),
    Action(faults.lose_runtime, 2, lambda r: (r.choice(NODE_NAMES), r.choice(LONG_BREAKS))),
    Action(
        faults.skew, 3, lambda r: (r.choice(MANAGERS), r.choice([-3600.0, -30.0, 120.0, 3600.0]))
    ),
)
"""What happens to applications, their nodes and daemons."""

ACTIONS = {**EDITS, **FAULTS, **APPLICATION_ACTIONS}


def make_plan(seed: int) -> SimulationPlan:
    """A third of all plans is steady."""
    random = Random(seed)
    steady = seed % 3 == 0
    edit_steps = _steps(random, EDITS, random.randint(3, 14))
    fault_steps = _steps(random, FAULTS, random.randint(int(steady), 6))
    if steady:
        fault_steps = [each._replace(at=each.at + STEADY_AT_SECONDS) for each in fault_steps]
    first = PlanStep(round(random.uniform(0, 3), 3), "put_marker", _put_marker(random))
    return SimulationPlan(seed, tuple(sorted([first, *edit_steps, *fault_steps])), steady)


APPLICATION_SECONDS = 600.0
TICK_SECONDS = 0.05
"""Ticks of probes are at multiples of it; steps of a plan come just before, when a daemon has most to do."""


def make_application_plan(seed: int) -> SimulationPlan:
    """The marker, and then actions at any time."""
    random = Random(f"applications {seed}")
    names = random.choices(
        list(APPLICATION_ACTIONS),
        [each.weight for each in APPLICATION_ACTIONS.values()],
        k=random.randint(5, 40),
    )
    steps = [PlanStep(0.5, "put_application_marker", (random.randrange(10_000),))]
    for name in names:
        at = random.randrange(int(APPLICATION_SECONDS / TICK_SECONDS)) * TICK_SECONDS
        steps.append(PlanStep(at - 0.001, name, APPLICATION_ACTIONS[name].arguments(random)))
    return SimulationPlan(seed, tuple(sorted(steps)))


def _steps(random: Random, actions: dict[str, Action], count: int) -> list[PlanStep]:
    names = random.choices(list(actions), [each.weight for each in actions.values()], k=count)
    return [
        PlanStep(
            round(random.uniform(0, EDITING_SECONDS), 3), each, actions[each].arguments(random)
        )
        for each in names
    ]
