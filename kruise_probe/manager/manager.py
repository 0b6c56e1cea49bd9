"""The manager of an operator: its client, caches, controllers, leader election, health and metrics.

Source: controller-runtime pkg/manager and pkg/cluster.
Differs: `client` reads from the server, and `cache` from the informers. The writes of `client` are visible in `cache`
at once. With leader election, every write is fenced: leadership is checked in the step that sends it.
"""

import os
import socket
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

from kruise_probe.api.declared import KindRef, resource_of
from kruise_probe.api.kinds import KubeObject, Resource
from kruise_probe.api.times import utc_now
from kruise_probe.client.client import Client
from kruise_probe.client.config import ClusterConfig, load_config
from kruise_probe.client.recorder import EventRecorder
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.informers.mutation_cache import MutationCache
from kruise_probe.informers.reflector import ListerWatcher
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.manager.cache_checks import add_cache_checks
from kruise_probe.manager.leader_election import LeaderElection, LeaderElector
from kruise_probe.manager.process import run_until_signalled
from kruise_probe.manager.runnables import Runnable, Runnables
from kruise_probe.serving.exposition import MetricsHandler
from kruise_probe.serving.health import Checks, health_handlers
from kruise_probe.serving.http_server import HttpHandler
from kruise_probe.serving.server import HttpServer
from kruise_probe.serving.stalls import StallDetector

T = TypeVar("T", bound=KubeObject)


class Manager:
    """Owns everything that an operator runs. The constructor starts nothing; `run` or `start` may be called once.

    Args:
        config: the API server; by default as `load_config` finds it.
        name: field manager of writes, component of events, and name of the Lease.
        namespace: the only namespace to watch; empty for all.
        leader_election: True, or options, to run the controllers only while this process holds the Lease.
        health_addr, metrics_addr: such as `:8081`; 0 disables the server.
        resync_seconds: interval at which every object is enqueued again; 0 is never.
        health, ready: replace the checks, if other servers already report them.
        qps, burst: limits of requests per second; 0 is no limit.
        hostname: for events and the identity of the Lease; by default that of the machine.
        source: builds the source of an informer; tests may replace it.
        new_client: builds the clients; tests may replace it.

    Attributes:
        client: reads objects from the server and writes them.
        rest: sends the requests of `client`; its bodies are bytes.
        unfenced: as `rest`, but a standby may write with it, too: for the Lease, or a webhook's certificates.
        events: records events.
        servers: the HTTP servers of health and metrics, once `start` has bound them.
        health, ready: checks of /healthz and /readyz. `ready` has two for each informer.
    """

    def __init__(
        self,
        config: ClusterConfig | None = None,
        *,
        name: str,
        namespace: str = "",
        leader_election: bool | LeaderElection = False,
        health_addr: str = "0",
        metrics_addr: str = "0",
        resync_seconds: float = 0.0,
        cache_sync_timeout_seconds: float = 120.0,
        health: Checks | None = None,
        ready: Checks | None = None,
        user_agent: str = "",
        qps: float = 0.0,
        burst: int = 0,
        hostname: str = "",
        source: Callable[[Resource[Any], str], ListerWatcher[Any]] | None = None,
        new_client: Callable[..., RestClient] = RestClient,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.name: Final = name
        self.namespace: Final = namespace
        self.config: Final = config if config is not None else load_config()
        self.health: Final = health or Checks()
        self.ready: Final = ready or Checks()
        rest_client = partial(
            new_client,
            config=self.config,
            field_manager=name,
            user_agent=user_agent or name,
            qps=qps,
            burst=burst,
        )
        self._now = now
        self._hostname = hostname or socket.gethostname()
        self.unfenced: Final = rest_client()
        self.elector: Final = self._new_elector(leader_election)
        before_send = self.elector.check if self.elector else None
        self.rest: Final = rest_client(before_send=before_send)
        self.client: Final = Client(self.rest)
        self.events: Final = EventRecorder(self.rest, component=name, host=self._hostname, now=now)
        self._source = source or self._lister_watcher
        self._resync_seconds = resync_seconds
        self._cache_sync_timeout_seconds = cache_sync_timeout_seconds
        self._addresses = {"health_addr": health_addr, "metrics_addr": metrics_addr}
        self._informers: dict[tuple[Resource[Any], str], SharedInformer[Any]] = {}
        self._caches: dict[Resource[Any], MutationCache[Any]] = {}
        self.servers: Sequence[HttpServer] = ()
        self._services: list[Runnable] = []
        self._controllers: list[Runnable] = []
        self._started = False

    @property
    def informers(self) -> Sequence[SharedInformer[Any]]:
        return tuple(self._informers.values())

    @property
    def controllers(self) -> Sequence[Runnable]:
        return tuple(self._controllers)

    def informer(self, kind: KindRef[T], namespace: str | None = None) -> SharedInformer[T]:
        """Return the shared informer of a kind. `namespace` replaces that of the manager.

        Raises:
            RuntimeError: the manager has started without it, so the informer would stay empty.
        """
        resource = resource_of(kind)
        namespace = self.namespace if namespace is None else namespace
        namespace = namespace if resource.namespaced else ""
        found = self._informers.get((resource, namespace))
        if found is None:
            self._require_not_started(f"informer of {resource.plural}")
            found = self._informers[resource, namespace] = SharedInformer(
                self._source(resource, namespace),
                name=resource.plural,
                resync_seconds=self._resync_seconds,
            )
            add_cache_checks(self.ready, found)
        return found

    def cache(self, kind: KindRef[T]) -> MutationCache[T]:
        """Return the cache of a kind: the informer's objects, and our own writes before their events arrive."""
        resource = resource_of(kind)
        found = self._caches.get(resource)
        if found is None:
            informer = self.informer(resource)
            found = self._caches[resource] = MutationCache(informer.lister)
            informer.add_event_handler(_CacheEvents(found))
            self.client.observe_writes(resource, found)
        return found

    def index(
        self,
        kind: KindRef[T],
        name: str,
        index_func: Callable[[T], Iterable[Hashable]],
    ) -> None:
        """Add a field index, for `cache(kind).by_index(name, value)`. Call it before the manager runs."""
        self.informer(kind).add_index(name, index_func)

    def add_controller(self, controller: Runnable) -> None:
        """Run it while this process leads. Raises RuntimeError if the manager has started."""
        self._require_not_started("controller")
        self._controllers.append(controller)

    def add_service(self, service: Runnable) -> None:
        """Run it from the start, in a standby too. Raises RuntimeError if the manager has started."""
        self._require_not_started("service")
        self._services.append(service)

    def run(self) -> None:
        """Run on a new event loop until SIGTERM or SIGINT. Then release the Lease and return.

        Raises:
            FatalError: a runnable ended or failed, caches did not sync in time, or the Lease was lost.
        """
        run_until_signalled(self.start(), program=self.name)

    async def start(self) -> None:
        """Run until cancelled. A hung task does not delay that; see `Runnables`.

        Raises:
            FatalError: as `run`.
        """
        self._started = True
        services = [*self._bind_servers(), *self._services]
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.unfenced)
            await stack.enter_async_context(self.rest)
            await Runnables(
                services=services,
                caches=self.informers,
                controllers=[self.events, *self._controllers],
                elector=self.elector,
                cache_sync_timeout_seconds=self._cache_sync_timeout_seconds,
            ).run()

    def _require_not_started(self, what: str) -> None:
        if self._started:
            raise RuntimeError(f"{what}: the manager has started; add it before run() or start()")

    def _bind_servers(self) -> list[Runnable]:
        """Bind the HTTP servers before anything else starts, so that a port in use is the first error."""
        handlers: dict[str, dict[str, HttpHandler]] = {
            "health_addr": health_handlers(health=self.health, ready=self.ready),
            "metrics_addr": {"/metrics": MetricsHandler()},
        }
        self.servers = [
            HttpServer(address, flag=flag, handlers=handlers[flag])
            for flag, address in self._addresses.items()
            if address != "0"
        ]
        for each in self.servers:
            each.bind()
        if not self.servers:
            return []
        stalls = StallDetector()
        self.health.add("loop", stalls.check)
        self.ready.add("loop", stalls.check)
        return [stalls, *self.servers]

    def _new_elector(self, options: bool | LeaderElection) -> LeaderElector | None:
        if options is False:
            return None
        chosen = LeaderElection() if options is True else options
        complete = chosen._replace(
            namespace=chosen.namespace or self.namespace or self.config.namespace,
            lease=chosen.lease or self.name,
            identity=chosen.identity or f"{self._hostname}_{os.getpid()}_{os.urandom(4).hex()}",
        )
        return LeaderElector(self.unfenced, complete, now=self._now)

    def _lister_watcher(self, resource: Resource[Any], namespace: str) -> ListerWatcher[Any]:
        return ResourceListerWatcher(self.rest, resource, namespace=namespace)


class _CacheEvents:
    """The event handler that keeps a mutation cache up to date."""

    def __init__(self, cache: MutationCache[Any]) -> None:
        self._cache = cache

    def on_add(self, obj: Any, is_initial: bool) -> None:
        self._cache.observe(obj)

    def on_update(self, old: Any, new: Any) -> None:
        self._cache.observe(new)

    def on_delete(self, last_known: Any) -> None:
        self._cache.observe_deletion(last_known)
