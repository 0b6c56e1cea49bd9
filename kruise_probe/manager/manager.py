"""The manager: its clients, informers and controllers, and the order in which they start and stop.

Start order, with reasons:

1. Services and informers, until these have synced: a reconcile on a partial cache would remove what it does not see.
2. Leader election: a standby has warm caches.
3. Controllers: only the leader writes. A resync gives them every object; until then their queues take no keys.

The stop order is the reverse. Leader election releases the Lease when all controllers have ended.

Source: controller-runtime pkg/manager/internal.go (Start, engageStopProcedure) and pkg/cluster.
Differs: any runnable that returns ends the manager. With leader election, every write is fenced: leadership is checked
in the step that sends it.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import structlog

from kruise_probe.api.errors import FatalError, first_of
from kruise_probe.api.meta import KubeObject, Resource
from kruise_probe.api.times import utc_now
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.pool import Pool
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.informers.reflector import ListerWatcher
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.manager.leader_election import LeaderElection, LeaderElector
from kruise_probe.runtime.recorder import EventRecorder
from kruise_probe.serving.health import Checks

T = TypeVar("T", bound=KubeObject)
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Runnable(Protocol):
    """Something that runs until it is cancelled. Errors use its `name` if it has one."""

    async def run(self) -> None: ...


class Manager:
    """Owns everything that the process runs. The constructor starts nothing; `start` may be called once.

    Args:
        name: field manager of writes, and component of events.
        ready: gets two checks for each informer.
        namespace: the only namespace to watch; empty for all.
        leader_election: runs the controllers only while this process holds the Lease; None always runs them.
        elect_in_thread: a thread renews the Lease; not with virtual time.
        resync_seconds: interval at which every object is enqueued again; 0 is never.
        qps, burst: limits of requests per second; 0 is no limit.
        hostname: for events; by default that of the machine.
        source: builds the source of an informer; tests may replace it.
        new_client: builds the clients; tests may replace it.

    Attributes:
        rest: sends the requests of the controllers and informers.
        unfenced: as `rest`, but a standby may write with it, too: a webhook's certificates.
        events: records events.
        preparations: end before anything else runs.
        services: run from the start, in a standby too.
        controllers: run while this process leads.
        on_lead: called before they begin, and before the resync of every object.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        name: str,
        ready: Checks,
        namespace: str = "",
        leader_election: LeaderElection | None = None,
        elect_in_thread: bool = False,
        resync_seconds: float = 0.0,
        cache_sync_timeout_seconds: float = 120.0,
        user_agent: str = "",
        qps: float = 0.0,
        burst: int = 0,
        hostname: str = "",
        source: Callable[[Resource[Any], str], ListerWatcher[Any]] | None = None,
        new_client: Callable[..., RestClient] = RestClient,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.namespace: Final = namespace
        self.ready: Final = ready
        self.now: Final = now
        rest_client = partial(
            new_client,
            config=config,
            field_manager=name,
            user_agent=user_agent or name,
            qps=qps,
            burst=burst,
        )
        pool = Pool(config)
        self.unfenced: Final = rest_client(pool=pool)
        self.elector: LeaderElector | None = None
        fence: Callable[[], None] | None = None
        if leader_election is not None:
            self.elector = LeaderElector(
                rest_client if elect_in_thread else partial(rest_client, pool=pool),
                leader_election,
                now=now,
                in_thread=elect_in_thread,
            )
            fence = self.elector.check
        self.rest: Final = rest_client(before_send=fence, pool=pool)
        host = hostname or socket.gethostname()
        self.events: Final = EventRecorder(self.rest, component=name, host=host, now=now)
        self.informers: Final[list[SharedInformer[Any]]] = []
        self.preparations: list[Callable[[], Awaitable[None]]] = []
        self.services: list[Runnable] = []
        self.controllers: list[Runnable] = [self.events]
        self.on_lead: Callable[[], object] = lambda: None
        self._source = source or partial(ResourceListerWatcher, self.rest)
        self._resync_seconds = resync_seconds
        self._cache_sync_timeout_seconds = cache_sync_timeout_seconds

    def add_informer(
        self,
        resource: Resource[T],
        namespace: str = "",
    ) -> SharedInformer[T]:
        """Return a new informer that the manager runs, and add its checks."""
        informer: SharedInformer[T] = SharedInformer(
            self._source(resource, namespace),
            name=resource.plural,
            resync_seconds=self._resync_seconds,
        )
        self.informers.append(informer)
        self.ready.add_cache(informer)
        return informer

    async def start(self) -> None:
        """Run until cancelled.

        Raises:
            FatalError: a runnable ended or failed, caches did not sync in time, or the Lease was lost.
        """
        try:
            async with self.unfenced, self.rest, asyncio.TaskGroup() as group:
                for prepare in self.preparations:
                    await prepare()
                for runnable in (*self.services, *self.informers):
                    group.create_task(_guard(runnable))
                await self._wait_for_sync()
                if self.elector is not None:
                    await self.elector.run(self.lead)
                else:
                    await self.lead()
        except BaseExceptionGroup as failed:
            raise first_of(failed) from failed

    async def _wait_for_sync(self) -> None:
        try:
            async with asyncio.timeout(self._cache_sync_timeout_seconds):
                for informer in self.informers:
                    await informer.wait_for_sync()
        except TimeoutError:
            cold = [informer for informer in self.informers if not informer.has_synced]
            reasons = [f"{cache.name} ({cache.last_error or 'no response'})" for cache in cold]
            raise FatalError(
                f"caches did not sync within {self._cache_sync_timeout_seconds:g} s: {'; '.join(reasons)}. Check that the"
                " API server answers, that the CRDs are installed and that the role allows list and watch"
            ) from None
        _log.info("caches synced", caches=[informer.name for informer in self.informers])

    async def lead(self) -> None:
        """Run the controllers, on synced caches, until cancelled."""
        self.on_lead()
        async with asyncio.TaskGroup() as group:
            for controller in self.controllers:
                group.create_task(_guard(controller))
            for informer in reversed(
                self.informers
            ):  # later ones decide on objects of earlier ones
                await informer.resync()


async def _guard(runnable: Runnable) -> None:
    """Run a runnable until it is cancelled.

    Raises:
        FatalError: it failed or ended, in one line with its name.
    """
    name = getattr(runnable, "name", type(runnable).__name__)
    try:
        await runnable.run()
    except Exception as error:
        first = first_of(error)
        reason = str(first).partition("\n")[0] or type(first).__name__
        raise FatalError(f"{name} failed: {reason}") from error
    raise FatalError(f"{name} ended")
