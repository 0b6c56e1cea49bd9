"""Faults of a simulated cluster. A fault that has a duration ends by itself."""

from functools import partial

from simulation.network import QUIET, Chances
from simulation.world import World
from support.api_server import expire_store

from kruise_probe.daemon.cri.runtime import RuntimeUnavailable


def kill(world: World, process: str, down_seconds: float) -> None:
    """SIGKILL, and another start."""
    world.processes[process].kill()
    _start_after(world, process, down_seconds)


def terminate(world: World, process: str, down_seconds: float) -> None:
    """SIGTERM, and another start."""
    world.processes[process].terminate()
    _start_after(world, process, down_seconds)


def _start_after(world: World, process: str, seconds: float) -> None:
    world.after(seconds, f"start {process}", world.processes[process].start)


def stop(world: World, process: str, seconds: float) -> None:
    """SIGSTOP, and SIGCONT."""
    world.loop.pause(process)
    world.begin_fault(f"stop {process}", seconds, partial(world.loop.resume, process))


def sever(
    world: World,
    process: str,
    seconds: float,
    watches_only: bool,
) -> None:
    """Delay all requests and watch events of a process, or its watch events only."""
    connection = world.processes[process].connection
    if connection and not connection.dead:
        connection.sever(watches_only=watches_only)
        world.begin_fault(f"sever {process}", seconds, connection.heal)


def cut_streams(world: World, process: str) -> None:
    """Break the watches of a process."""
    connection = world.processes[process].connection
    if connection:
        connection.cut_streams()


def disturb(
    world: World,
    process: str,
    seconds: float,
    chances: tuple[float, ...],
) -> None:
    """Lose, repeat, delay and refuse single requests."""
    connection = world.processes[process].connection
    if connection:
        connection.chances = Chances(*chances)
        end = partial(setattr, connection, "chances", QUIET)
        world.begin_fault(f"disturb {process}", seconds, end)


def lag(world: World, server: int, seconds: float) -> None:
    """Delay the watch events of one API server."""
    world.servers.freeze(server)
    world.begin_fault("lag", seconds, world.servers.thaw)


def connect(world: World, process: str, server: int) -> None:
    """Connect the process to API server 0 or 1 from its next start on."""
    world.processes[process].server = server


def skew(world: World, process: str, seconds: float) -> None:
    """Set the error of a process's clock."""
    world.processes[process].skew_seconds = seconds


def lose_runtime(world: World, node: str, seconds: float) -> None:
    """Make the container runtime of a node unavailable."""
    failures = world.runtimes[node].failures
    calls = ("Version", "ListContainers", "ContainerStatus", "PodSandboxStatus", "ExecSync")
    failures.update(dict.fromkeys(calls, RuntimeUnavailable("simulated")))
    world.begin_fault(f"runtime {node}", seconds, failures.clear)


def expire(world: World) -> None:
    """Make every resource version too old."""
    expire_store(world.registry.store)
