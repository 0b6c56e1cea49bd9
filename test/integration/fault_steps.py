"""Steps that several tests of `integration/faults` share."""

from collections.abc import Callable

from support.embedded_cluster import EmbeddedCluster
from support.hollow import CONDITION
from support.patience import PATIENCE_SECONDS
from support.target import condition
from support.wire import Json


def exec_probes(count: int, command: str, **numbers: int) -> list[Json]:
    """Probes of NodePodProbe.spec that run `COMMAND NUMBER` in the container `main`."""
    probes: list[Json] = []
    for number in range(count):
        handler = {
            "exec": {"command": [command, str(number)]},
            **numbers,
        }
        probes.append(
            {
                "name": f"marker#p{number}",
                "containerName": "main",
                "probe": handler,
            }
        )
    return probes


def is_marked(pod: Json) -> bool:
    return bool(condition(pod, CONDITION))


async def all_pods(
    cluster: EmbeddedCluster,
    what: str,
    holds: Callable[[Json], bool],
    *,
    seconds: float = PATIENCE_SECONDS,
) -> None:
    """Returns once there are pods and `holds` is true for all of them."""
    pods = cluster.api.pods

    def all_hold() -> bool:
        found = pods.all()
        return bool(found) and all(holds(pod) for pod in found)

    await pods.wait(what, all_hold, seconds=seconds)
