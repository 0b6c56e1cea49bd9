"""The manager: its clients, informers, controllers and leader election.

Source: controller-runtime pkg/manager and pkg/cluster.
Differs: with leader election, every write is fenced: leadership is checked in the step that sends it.
"""

import socket
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

from kruise_probe.api.kinds import KubeObject, Resource
from kruise_probe.api.times import utc_now
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.recorder import EventRecorder
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.informers.reflector import ListerWatcher
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.manager.cache_checks import add_cache_checks
from kruise_probe.manager.leader_election import LeaderElection, LeaderElector
from kruise_probe.manager.runnables import Runnable, Runnables
from kruise_probe.serving.health import Checks

T = TypeVar("T", bound=KubeObject)


class Manager:
    """Owns everything that the process runs. The constructor starts nothing; `start` may be called once.

    Args:
        name: field manager of writes, and component of events.
        ready: gets two checks for each informer.
        namespace: the only namespace to watch; empty for all.
        leader_election: runs the controllers only while this process holds the Lease; None always runs them.
        resync_seconds: interval at which every object is enqueued again; 0 is never.
        qps, burst: limits of requests per second; 0 is no limit.
        hostname: for events; by default that of the machine.
        source: builds the source of an informer; tests may replace it.
        new_client: builds the clients; tests may replace it.

    Attributes:
        rest: sends the requests of the controllers and informers.
        unfenced: as `rest`, but a standby may write with it, too: for the Lease, or a webhook's certificates.
        events: records events.
        services: run from the start, in a standby too.
        controllers: run while this process leads.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        name: str,
        ready: Checks,
        namespace: str = "",
        leader_election: LeaderElection | None = None,
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
        rest_client = partial(
            new_client,
            config=config,
            field_manager=name,
            user_agent=user_agent or name,
            qps=qps,
            burst=burst,
        )
        self.unfenced: Final = rest_client()
        self.elector: Final = (
            LeaderElector(self.unfenced, leader_election, now=now) if leader_election else None
        )
        self.rest: Final = rest_client(before_send=self.elector.check if self.elector else None)
        host = hostname or socket.gethostname()
        self.events: Final = EventRecorder(self.rest, component=name, host=host, now=now)
        self.informers: Final[list[SharedInformer[Any]]] = []
        self.services: list[Runnable] = []
        self.controllers: list[Runnable] = [self.events]
        self._source = source or self._lister_watcher
        self._resync_seconds = resync_seconds
        self._cache_sync_timeout_seconds = cache_sync_timeout_seconds

    def add_informer(self, resource: Resource[T], namespace: str = "") -> SharedInformer[T]:
        """Return a new informer that the manager runs, and add its checks."""
        informer: SharedInformer[T] = SharedInformer(
            self._source(resource, namespace),
            name=resource.plural,
            resync_seconds=self._resync_seconds,
        )
        self.informers.append(informer)
        add_cache_checks(self.ready, informer)
        return informer

    async def start(self) -> None:
        """Run until cancelled. A hung task does not delay that; see `Runnables`.

        Raises:
            FatalError: a runnable ended or failed, caches did not sync in time, or the Lease was lost.
        """
        async with self.unfenced, self.rest:
            await Runnables(
                services=self.services,
                caches=self.informers,
                controllers=self.controllers,
                elector=self.elector,
                cache_sync_timeout_seconds=self._cache_sync_timeout_seconds,
            ).run()

    def _lister_watcher(self, resource: Resource[Any], namespace: str) -> ListerWatcher[Any]:
        return ResourceListerWatcher(self.rest, resource, namespace=namespace)
