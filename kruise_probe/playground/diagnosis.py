"""What is wrong, for the live view: the problems that `kruise-probe status` would name, kept current.

Owns informers of its own: `inspection` reads more of each object than the view shows.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.api.resources import LEASES, MARKERS, NODE_POD_PROBES, NODES, KubeObject, Resource
from kruise_probe.api.times import utc_now
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.inspection.link import LinkState
from kruise_probe.inspection.snapshot import SEEN_PODS, Snapshot
from kruise_probe.inspection.status import Problem, status_view

T = TypeVar("T", bound=KubeObject)


class Trouble(NamedTuple):
    """`text` says what is wrong with whom, `remedy` what to do about it."""

    text: str
    remedy: str


class Diagnosis:
    """Problems as they stand, while `run` runs."""

    def __init__(self, client: RestClient) -> None:
        self._client = client
        self._pods = self._informer(SEEN_PODS)
        self._markers = self._informer(MARKERS)
        self._nodes = self._informer(NODES)
        self._reports = self._informer(NODE_POD_PROBES)
        self._leases = self._informer(LEASES, SYSTEM_NAMESPACE)

    def _informer(self, resource: Resource[T], namespace: str = "") -> SharedInformer[T]:
        lister = ResourceListerWatcher(self._client, resource, namespace=namespace)
        return SharedInformer(lister, name=f"{resource.plural} of the diagnosis")

    @property
    def _all(self) -> tuple[SharedInformer[Any], ...]:
        return self._pods, self._markers, self._nodes, self._reports, self._leases

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            for each in self._all:
                group.create_task(each.run(), name=each.name)

    @property
    def troubles(self) -> list[Trouble]:
        """What needs somebody, by marker; nothing before all is known."""
        if not all(each.has_synced for each in self._all):
            return []
        snapshot = Snapshot(
            now=utc_now(),
            markers=tuple(self._markers.lister.list()),
            pods=tuple(self._pods.lister.list()),
            nodes={each.key.name: each for each in self._nodes.lister.list()},
            node_pod_probes={each.key.name: each for each in self._reports.lister.list()},
            leases={each.key.name: each for each in self._leases.lister.list()},
        )
        view = status_view(snapshot, snapshot.markers, ())
        return troubles_of([(each.name, each.problems) for each in view.markers])


def troubles_of(found: Sequence[tuple[str, Sequence[Problem]]]) -> list[Trouble]:
    """One for each kind of trouble of a marker, however many pods have it; what passes by itself is left out."""
    pods: dict[tuple[str, Problem], list[str]] = {}
    for marker, problems in found:
        for each in problems:
            if each.severity == LinkState.BROKEN or each.reason == "NoPods":
                pods.setdefault((marker, _shared(each)), []).append(each.pod)
    return [_trouble(marker, each, names) for (marker, each), names in pods.items()]


def _shared(problem: Problem) -> Problem:
    """What is the same for all pods."""
    return type(problem)(
        severity=problem.severity,
        link=problem.link,
        reason=problem.reason,
        message=problem.message,
        remedy=problem.remedy,
        pod="",
        probe=problem.probe,
        node="",
    )


def _trouble(marker: str, problem: Problem, pods: Sequence[str]) -> Trouble:
    whose = f"{marker}#{problem.probe}" if problem.probe else marker
    named = [each for each in pods if each]
    more = f" and {len(named) - 1} more" if len(named) > 1 else ""
    where = f" on {named[0]}{more}" if named else ""
    return Trouble(f"{whose}{where}: {problem.message}", problem.remedy)
