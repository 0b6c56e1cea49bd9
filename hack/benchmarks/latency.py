"""The time from a result in a NodePodProbe to the label on the pod, at rising load.

The benchmark plays the daemons: each result is one write of a node's status in which one pod has changed. One clock
starts when the write is sent, a second one with the watch event of the write.
"""

import asyncio
import itertools
from collections.abc import Iterator

from benchmarks import hollow
from benchmarks.cluster import Cluster
from benchmarks.reporting import Row, percentile
from benchmarks.watching import WatchedNode, WatchedPod

LOOK_SECONDS = 0.05
LATE_SECONDS = 10.0


class ResultLoad:
    """Flips one pod after the other, and notes the times."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._failed: set[str] = set()
        self._sent: dict[str, float] = {}
        self._stored: dict[str, float] = {}
        self._from_sent: list[float] = []
        self._from_stored: list[float] = []
        self._turns = self._next_pods()
        self._busy: set[str] = set()

    def _next_pods(self) -> Iterator[tuple[str, str]]:
        """(node, pod): all nodes in turn, then the next pod of each."""
        nodes = self._cluster.pods_of
        deepest = max(map(len, nodes.values()))
        order = [
            (node, pods[at][0])
            for at in range(deepest)
            for node, pods in nodes.items()
            if at < len(pods)
        ]
        return itertools.cycle(order)

    async def run(self, rate: float, seconds: float) -> Row:
        """Before the first run, the results of all pods are those of `hollow.results`."""
        loop = asyncio.get_running_loop()
        self._cluster.pods.on_event = self._pod_seen
        self._cluster.nodes.on_event = self._node_seen
        self._from_sent.clear()
        self._from_stored.clear()
        started_at = loop.time()
        skipped = 0
        async with asyncio.TaskGroup() as group:
            for number in range(int(rate * seconds)):
                await asyncio.sleep(max(started_at + number / rate - loop.time(), 0))
                node, pod = next(self._turns)
                if node in self._busy or pod in self._sent:
                    skipped += 1
                else:
                    group.create_task(self._flip(node, pod))
        took = loop.time() - started_at
        for _ in range(int(LATE_SECONDS / LOOK_SECONDS)):
            if not self._sent:
                break
            await asyncio.sleep(LOOK_SECONDS)
        missed = len(self._sent)
        self._sent.clear()
        self._stored.clear()
        row: Row = {
            "results": len(self._from_sent),
            "reached_per_second": round(len(self._from_sent) / took, 1),
            "skipped": skipped,
            "missed": missed,
        }
        for begin, seconds_taken in (("sent", self._from_sent), ("stored", self._from_stored)):
            for share in (50, 99):
                milliseconds = percentile(seconds_taken, share / 100) * 1000
                row[f"{begin}_to_label_ms_p{share}"] = round(milliseconds, 1)
        return row

    async def _flip(self, node: str, pod: str) -> None:
        self._busy.add(node)
        self._failed ^= {pod}
        pods = self._cluster.pods_of[node]
        request = hollow.results(node, pods, failed=self._failed)
        self._sent[pod] = asyncio.get_running_loop().time()
        try:
            await self._cluster.api.call(request)
        finally:
            self._busy.discard(node)

    def _node_seen(self, seen: WatchedNode) -> None:
        now = asyncio.get_running_loop().time()
        for name, _ in self._cluster.pods_of.get(seen.metadata.name, ()):
            if name in self._sent:
                self._stored.setdefault(name, now)

    def _pod_seen(self, seen: WatchedPod) -> None:
        name = seen.metadata.name
        if name in self._sent and seen.shows("False" if name in self._failed else "True"):
            now = asyncio.get_running_loop().time()
            self._from_sent.append(now - self._sent.pop(name))
            self._from_stored.append(now - self._stored.pop(name, now))
