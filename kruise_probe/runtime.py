"""The public interface of the runtime: informers, work queues, controllers, leader election and the client.

The names are those of client-go and controller-runtime, in asyncio. Import them from this module only: the modules
behind it may change. It knows nothing of probes; the product is written with it, like any other operator.
"""

from kruise_probe.api.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    ConnectionFailed,
    FatalError,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
)
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.kinds import KubeObject, Resource, as_is
from kruise_probe.api.meta import ApiObject, LabelSelector, ObjectMeta, OwnerReference
from kruise_probe.api.times import utc_now
from kruise_probe.client.config import ClusterConfig, load_config
from kruise_probe.client.event_series import ObjectReference
from kruise_probe.client.recorder import EventRecorder
from kruise_probe.client.request import PatchType
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.informers.mutation_cache import MutationCache
from kruise_probe.informers.replica import EventHandler
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.informers.store import Indexer
from kruise_probe.manager.leader_election import LeaderElector, LeadershipLost, NotLeader
from kruise_probe.manager.process import run_until_signalled
from kruise_probe.manager.runnables import ManagerError, Runnable, Runnables
from kruise_probe.workqueue.controller import Controller, Result, TerminalError
from kruise_probe.workqueue.priority import Priority
from kruise_probe.workqueue.queue import WorkQueue
from kruise_probe.workqueue.rate_limiters import (
    BucketRateLimiter,
    ItemExponentialFailureRateLimiter,
    MaxOfRateLimiter,
    RateLimiter,
)

__all__ = [
    "AlreadyExists",
    "ApiError",
    "ApiObject",
    "BucketRateLimiter",
    "ClusterConfig",
    "Conflict",
    "ConnectionFailed",
    "Controller",
    "EventHandler",
    "EventRecorder",
    "FatalError",
    "Forbidden",
    "Indexer",
    "Invalid",
    "ItemExponentialFailureRateLimiter",
    "KubeError",
    "KubeObject",
    "LabelSelector",
    "LeaderElector",
    "LeadershipLost",
    "ManagerError",
    "MaxOfRateLimiter",
    "MutationCache",
    "NamespacedName",
    "NotFound",
    "NotLeader",
    "ObjectMeta",
    "ObjectReference",
    "OwnerReference",
    "PatchType",
    "Priority",
    "RateLimiter",
    "Resource",
    "ResourceListerWatcher",
    "RestClient",
    "Result",
    "Runnable",
    "Runnables",
    "SharedInformer",
    "TerminalError",
    "WorkQueue",
    "as_is",
    "load_config",
    "run_until_signalled",
    "utc_now",
]
