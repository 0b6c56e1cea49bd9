"""Watches of pods, nodes and markers that return when the last object has reached its goal."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Generic, TypeVar

import msgspec
from support.hollow import LABEL

from benchmarks import hollow
from benchmarks.api import BareClient, Refused
from benchmarks.reporting import progress

WATCH_SECONDS = 14_400
PROGRESS_SECONDS = 30.0
AGAIN_SECONDS = 0.5
CACHE_IS_BEHIND = 504
"""The code of the error with which a busy API server ends a new watch: its cache lacks what etcd has."""


class _Meta(msgspec.Struct):
    name: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    resourceVersion: str = ""


class _Condition(msgspec.Struct):
    type: str
    status: str


class _PodStatus(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] = ()


class WatchedPod(msgspec.Struct):
    metadata: _Meta
    status: _PodStatus = _PodStatus()

    def shows(self, wanted: str) -> bool:
        """Whether it has the label, and the condition of every probe."""
        text = {"True": "good", "False": "bad"}[wanted]
        statuses = {condition.type: condition.status for condition in self.status.conditions}
        return self.metadata.labels.get(LABEL) == text and all(
            statuses.get(hollow.condition_type(probe)) == wanted for probe in hollow.PROBES
        )

    @property
    def bare(self) -> bool:
        types = {condition.type for condition in self.status.conditions}
        return LABEL not in self.metadata.labels and not types & {
            hollow.condition_type(probe) for probe in hollow.PROBES
        }


class _Timing(msgspec.Struct):
    periodSeconds: int = 0


class _Probe(msgspec.Struct):
    name: str
    probe: _Timing


class _Entry(msgspec.Struct):
    uid: str
    probes: list[_Probe] = []


class _Spec(msgspec.Struct, frozen=True):
    podProbes: tuple[_Entry, ...] = ()


class WatchedNode(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = _Spec()

    def lists(self, pods: int, period_seconds: int) -> bool:
        """All probes of that many pods, at this period."""
        return len(self.spec.podProbes) == pods and all(
            len(entry.probes) == len(hollow.PROBES)
            and all(probe.probe.periodSeconds == period_seconds for probe in entry.probes)
            for entry in self.spec.podProbes
        )


class WatchedMarker(msgspec.Struct):
    metadata: _Meta


Object = TypeVar("Object", WatchedPod, WatchedNode, WatchedMarker)


class _Status(msgspec.Struct):
    code: int = 0


class _Event(msgspec.Struct, Generic[Object]):
    type: str
    object: msgspec.Raw


class Watched(Generic[Object]):
    """The objects of one collection, by name; `run` watches them."""

    def __init__(
        self,
        api: BareClient,
        path: str,
        kind: type[Object],
    ) -> None:
        self._api = api
        self._path = path
        self._event = msgspec.json.Decoder(_Event)
        self._kind: msgspec.json.Decoder[Object] = msgspec.json.Decoder(kind)
        self.objects: dict[str, Object] = {}
        self.on_event: Callable[[Object], None] | None = None
        self._reached: Callable[[Object], bool] | None = None
        self._missing: set[str] = set()
        self._gone_too = False
        self._done = asyncio.Event()

    async def run(self) -> None:
        path = f"{self._path}?watch=true&timeoutSeconds={WATCH_SECONDS}&allowWatchBookmarks=false"
        while True:
            try:
                async with self._api.watch(path) as lines:
                    await self._read(lines)
            except Refused as refusal:
                if refusal.status != 429:  # a CRD that is new: its storage is not ready
                    raise
                await asyncio.sleep(AGAIN_SECONDS)

    async def _read(self, lines: AsyncIterator[bytes]) -> None:
        async for line in lines:
            event = self._event.decode(line)
            if event.type == "ERROR":
                status = msgspec.json.decode(event.object, type=_Status)
                if status.code != CACHE_IS_BEHIND:
                    raise RuntimeError(bytes(event.object).decode())
                await asyncio.sleep(AGAIN_SECONDS)
                return
            seen = self._kind.decode(event.object)
            name = seen.metadata.name
            if event.type == "DELETED":
                self.objects.pop(name, None)
            else:
                self.objects[name] = seen
            if self.on_event is not None:
                self.on_event(seen)
            self._check(name)

    def _check(self, name: str) -> None:
        if self._reached is None:
            return
        seen = self.objects.get(name)
        if self._gone_too if seen is None else self._reached(seen):
            self._missing.discard(name)
            if not self._missing:
                self._done.set()
        else:
            self._missing.add(name)

    async def until(
        self,
        reached: Callable[[Object], bool],
        *,
        of: set[str] | None = None,
        gone_too: bool = False,
    ) -> float:
        """Waits until `reached` holds for all objects (or those named `of`); returns the loop time then.

        It prints its progress. With `gone_too`, an object that does not exist has reached its goal.
        """
        self._reached = reached
        self._gone_too = gone_too
        self._done.clear()
        self._missing = set(of if of is not None else self.objects)
        for name in tuple(self._missing):
            self._check(name)
        if not self._missing:
            self._done.set()
        while not self._done.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._done.wait(), PROGRESS_SECONDS)
                break
            progress(f"{self._path}: {len(self._missing)} objects have not reached their goal")
        self._reached = None
        return asyncio.get_running_loop().time()
