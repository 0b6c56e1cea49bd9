"""The Lease of a daemon in random histories, as managers of both kinds read it.

Managers of earlier versions read when the Lease expires, and know no other sign of life. Newer ones count from the last renewal
or write of the node's status, and only while the node has entries.
"""

import asyncio
import math
from contextlib import AsyncExitStack

from hypothesis import example, given
from hypothesis import strategies as st
from support.scripted_node import ScriptedNode, exec_probe, loop_time, one

from kruise_probe.api.errors import ConnectionFailed
from kruise_probe.api.node_pod_probe import NodePodProbeSpec
from kruise_probe.daemon.probers.prober import ProbeResult, success

LEASE_SECONDS = 60
RENEW_SECONDS = 20.0
LOOK_SECONDS = 0.25
SLOW_SECONDS = 3.0
RECOVERY_SECONDS = 16.0
"""A request that hangs (8 s), the longest pause before the next attempt (4 s), and its slow response."""


class History:
    """One node. `problems` has a line for each rule that is broken at some time."""

    def __init__(self, *, messages_change: bool) -> None:
        self.node = ScriptedNode()
        self._api = self.node.api
        self.problems: set[str] = set()
        self._daemon = AsyncExitStack()
        self._server = "ok"
        self._writes_before = 0
        self._idle_renewals = 0
        self._requested_at = -math.inf
        # Loop times; infinite while there is no daemon, and while the node has no entries.
        self._started_at = math.inf
        self._busy_since = math.inf
        self._down_until = -math.inf
        self._slow_until = -math.inf
        self._api.fail = self._respond
        self.node.containers.start()
        if messages_change:
            self.node.probers.behaviour = self._tell_time

    async def _tell_time(self, *_: object) -> ProbeResult:
        return success(str(loop_time()))

    async def play(self, steps: list[tuple[str, float]]) -> None:
        await self._do("start")
        for action, seconds in steps:
            await self._do(action)
            for _ in range(int(seconds / LOOK_SECONDS)):
                await asyncio.sleep(LOOK_SECONDS)
                self._look()
        await self._do("kill")

    async def _do(self, action: str) -> None:
        match action:
            case "entries come":
                self._api.put(one(exec_probe()))
                self._busy_since = min(self._busy_since, loop_time())
            case "entries go":
                self._api.put(NodePodProbeSpec())
                self._busy_since = math.inf
            case "object goes":
                if self._api.object is not None:
                    self._api.remove()
                self._busy_since = math.inf
            case "start":
                self._writes_before = len(self._api.lease_writes)
                self._idle_renewals = 0
                await self._daemon.enter_async_context(self.node.daemon())
                self._started_at = loop_time()
            case "kill":
                await self._daemon.aclose()
                self._started_at = math.inf
            case "restart":
                await self._do("kill")
                await self._do("start")
            case _:
                self._server = action

    async def _respond(self, kind: str) -> None:
        if kind == "Lease":
            self._check_request()
        match self._server:
            case "refuses":
                raise ConnectionFailed("refused")
            case "hangs":
                await asyncio.Event().wait()
            case "is slow":
                await asyncio.sleep(SLOW_SECONDS)
            case _:
                assert self._server == "ok"

    def _check_request(self) -> None:
        is_first = len(self._api.lease_writes) == self._writes_before
        if is_first or self._server in ("refuses", "hangs"):
            return
        now = loop_time()
        is_idle = self._busy_since > now
        self._idle_renewals = self._idle_renewals + 1 if is_idle else 0
        self._expect("an idle daemon renews once", self._idle_renewals <= 1)
        if self._duration == LEASE_SECONDS:
            pause = now - self._requested_at
            self._expect("renewals are 20 s apart", pause > RENEW_SECONDS - 0.1)
        self._requested_at = now

    @property
    def _duration(self) -> int:
        assert self._api.lease is not None
        seconds: int = self._api.lease["spec"]["leaseDurationSeconds"]
        return seconds

    def _look(self) -> None:
        now = loop_time()
        if self._server in ("refuses", "hangs"):
            self._down_until = now
        if self._server == "is slow":
            self._slow_until = now
        if now - max(self._down_until, self._started_at) <= RECOVERY_SECONDS:
            return
        renewed_at = self._api.lease_writes[-1]
        self._expect("the Lease never expires", now - renewed_at < self._duration)
        late = RECOVERY_SECONDS if now - self._slow_until <= RECOVERY_SECONDS else 0.1
        if now - self._busy_since <= late:
            return
        self._expect("with entries it lasts 60 s", self._duration == LEASE_SECONDS)
        last_write = self._api.writes[-1:]
        unseen = now - max([renewed_at, *(write.at for write in last_write)])
        self._expect("a sign of life each 20 s", unseen <= RENEW_SECONDS + late)
        self._expect("a renewal each 40 s", now - renewed_at <= 2 * RENEW_SECONDS + late)

    def _expect(self, rule: str, holds: bool) -> None:
        if not holds:
            self.problems.add(rule)


ACTIONS = [
    "entries come",
    "entries go",
    "object goes",
    "restart",
    "ok",
    "is slow",
    "refuses",
    "hangs",
]
STEPS = st.tuples(
    st.sampled_from(ACTIONS),
    st.floats(0.3, 70.0),
)


@given(st.lists(STEPS, max_size=15), st.booleans())
@example([("entries go", 59.0), ("entries come", 19.0)], False)
@example([("entries come", 30.0), ("entries go", 50.0), ("entries come", 1.0)], True)
@example([("entries go", 61.0), ("refuses", 1.0), ("entries come", 5.0), ("ok", 30.0)], False)
@example([("entries come", 5.0), ("object goes", 70.0)], False)
async def test_in_every_history_the_lease_is_right_for_old_and_new_managers(
    steps: list[tuple[str, float]], messages_change: bool
) -> None:
    history = History(messages_change=messages_change)
    await history.play(steps)
    assert not history.problems
