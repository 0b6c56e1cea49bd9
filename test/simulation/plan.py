"""Plans of simulations: which edits and faults happen when. A plan is made from a seed and test/data/actions.yaml."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from simulation import applications, edits, faults
from simulation.world import (
    APPS,
    DAEMONS,
    MANAGERS,
    MARKER_NAMES,
    NODE_NAMES,
    POD_NAMES,
    PROCESSES,
    World,
)
from support.tables import load_table

EDITING_SECONDS = 40.0
STEADY_AT_SECONDS = 160.0
"""Faults of a steady plan begin then: after its edits and the longest wait that they can cause."""
APPLICATION_SECONDS = 600.0
TICK_SECONDS = 0.05
"""Ticks of probes are at multiples of it; steps of a plan come just before, when a daemon has most to do."""
ROLE_STEPS = 300
ROLE_SECONDS = 900.0

Arguments = tuple[Any, ...]
Row = list[Any]
"""Time, name and arguments of a step."""


FUNCTIONS = {**vars(applications), **vars(faults), **vars(edits)}


class PlanStep(NamedTuple):
    """`name` is a function of `edits`, `faults` or `applications`, called with a world and `arguments` at virtual second `at`."""

    at: float
    name: str
    arguments: Arguments

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.arguments))})"

    def apply(self, world: World) -> None:
        world.note("plan", str(self))
        FUNCTIONS[self.name](world, *self.arguments)


class SimulationPlan(NamedTuple):
    """`seed` also decides the order of ready tasks and the latencies; so a plan and its seed are one run.

    A plan is steady if its faults come after all edits have taken effect.
    """

    seed: int
    steps: tuple[PlanStep, ...]
    steady: bool = False

    def __str__(self) -> str:
        return "\n".join(f"  {step.at:7.3f} {step}" for step in self.steps)


def steps_of(rows: list[Row]) -> tuple[PlanStep, ...]:
    return tuple(sorted(PlanStep(at, name, tuple(arguments)) for at, name, *arguments in rows))


class Seconds(tuple[float, ...]):
    """Longest durations. A random part of one of them is chosen."""


class Each(tuple[Any, ...]):
    """Lists. One of each is chosen."""


NAMES = {
    "apps": APPS,
    "daemons": DAEMONS,
    "handlers": tuple(applications.HANDLERS),
    "managers": MANAGERS,
    "markers": MARKER_NAMES,
    "nodes": NODE_NAMES,
    "pods": POD_NAMES,
    "processes": PROCESSES,
}
DATA = Path(__file__).parents[1] / "data"
PLANS = load_table(DATA / "plans.yaml", {})
ACTIONS = load_table(
    DATA / "actions.yaml",
    {
        "below": lambda end: range(int(end)),
        "each": Each,
        "names": NAMES.__getitem__,
        "seconds": Seconds,
    },
)


def _choose(random: Random, choices: Any) -> Any:
    if isinstance(choices, Each):
        return tuple(_choose(random, part) for part in choices)
    chosen = random.choice(choices)
    if isinstance(choices, Seconds):
        return round(chosen * random.random(), 3)
    return chosen


def _arguments(random: Random, kind: str, name: str) -> Arguments:
    parts = ACTIONS[kind][name].items()
    return tuple(_choose(random, choices) for part, choices in parts if part != "weight")


def _steps(
    random: Random,
    kind: str,
    count: int,
    time: Callable[[], float],
) -> list[PlanStep]:
    """So many actions of a kind, each at a `time`."""
    actions = ACTIONS[kind]
    weights = [action["weight"] for action in actions.values()]
    names = random.choices(list(actions), weights, k=count)
    return [PlanStep(time(), name, _arguments(random, kind, name)) for name in names]


def make_plan(seed: int) -> SimulationPlan:
    """A third of all plans is steady."""
    random = Random(seed)
    steady = seed % 3 == 0

    def at() -> float:
        return round(random.uniform(0, EDITING_SECONDS), 3)

    steps = _steps(
        random,
        "edits",
        random.randint(3, 14),
        at,
    )
    faults = _steps(
        random,
        "faults",
        random.randint(int(steady), 6),
        at,
    )
    if steady:
        faults = [fault._replace(at=fault.at + STEADY_AT_SECONDS) for fault in faults]
    arguments = _arguments(random, "edits", "put_marker")
    first_at = round(random.uniform(0, 3), 3)
    steps += [PlanStep(first_at, "put_marker", arguments), *faults]
    return SimulationPlan(seed, tuple(sorted(steps)), steady)


def make_application_plan(seed: int) -> SimulationPlan:
    """The marker, and then actions at any time."""
    random = Random(f"applications {seed}")

    def at() -> float:
        return random.randrange(int(APPLICATION_SECONDS / TICK_SECONDS)) * TICK_SECONDS - 0.001

    first = PlanStep(0.5, "put_application_marker", (random.randrange(10_000),))
    steps = _steps(
        random,
        "applications",
        random.randint(5, 40),
        at,
    )
    return SimulationPlan(seed, tuple(sorted([first, *steps])))


def make_role_plan(seed: int) -> SimulationPlan:
    """Failovers and faults at any time; most of them around a failover."""
    random = Random(f"roles {seed}")

    def at() -> float:
        return round(random.uniform(10.0, ROLE_SECONDS), 3)

    steps = _steps(random, "roles", ROLE_STEPS, at)
    return SimulationPlan(seed, tuple(sorted(steps)))
