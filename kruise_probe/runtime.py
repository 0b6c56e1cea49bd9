"""The public interface of the runtime: informers, work queues, controllers, leader election and the client.

The names are those of client-go and controller-runtime, in asyncio. Import them from this module only: the modules
behind it may change. It knows nothing of probes; the product is written with it, like any other operator.
"""

from msgspec.structs import replace

from kruise_probe.api.core import Lease, LeaseSpec, Node
from kruise_probe.api.declared import Unstructured, kind, resource_of, untyped
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
from kruise_probe.api.meta import ApiObject, Condition, LabelSelector, ObjectMeta, OwnerReference
from kruise_probe.api.times import utc_now
from kruise_probe.client.client import Client, merge_diff, retry_on_conflict
from kruise_probe.client.config import ClusterConfig, load_config
from kruise_probe.client.event_series import ObjectReference
from kruise_probe.client.recorder import EventRecorder
from kruise_probe.client.request import PatchType, Propagation
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.informers.mutation_cache import MutationCache
from kruise_probe.informers.replica import EventHandler
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.informers.store import Indexer
from kruise_probe.manager.builder import Builder, Reconciler
from kruise_probe.manager.leader_election import (
    LeaderElection,
    LeaderElector,
    LeadershipLost,
    NotLeader,
)
from kruise_probe.manager.manager import Manager
from kruise_probe.manager.object_changes import (
    AlreadyOwned,
    add_finalizer,
    controller_of,
    get_condition,
    has_finalizer,
    remove_finalizer,
    set_condition,
    set_controller_reference,
)
from kruise_probe.manager.predicates import (
    ANNOTATIONS_CHANGED,
    DELETION,
    GENERATION_CHANGED,
    LABELS_CHANGED,
    RESOURCE_VERSION_CHANGED,
    Predicate,
    object_predicate,
    update_predicate,
)
from kruise_probe.manager.process import run_until_signalled
from kruise_probe.manager.runnables import ManagerError, Runnable, Runnables
from kruise_probe.manager.sources import OWNER_INDEX
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
    "ANNOTATIONS_CHANGED",
    "DELETION",
    "GENERATION_CHANGED",
    "LABELS_CHANGED",
    "OWNER_INDEX",
    "RESOURCE_VERSION_CHANGED",
    "AlreadyExists",
    "AlreadyOwned",
    "ApiError",
    "ApiObject",
    "BucketRateLimiter",
    "Builder",
    "Client",
    "ClusterConfig",
    "Condition",
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
    "LeaderElection",
    "LeaderElector",
    "LeadershipLost",
    "Lease",
    "LeaseSpec",
    "Manager",
    "ManagerError",
    "MaxOfRateLimiter",
    "MutationCache",
    "NamespacedName",
    "Node",
    "NotFound",
    "NotLeader",
    "ObjectMeta",
    "ObjectReference",
    "OwnerReference",
    "PatchType",
    "Predicate",
    "Priority",
    "Propagation",
    "RateLimiter",
    "Reconciler",
    "Resource",
    "ResourceListerWatcher",
    "RestClient",
    "Result",
    "Runnable",
    "Runnables",
    "SharedInformer",
    "TerminalError",
    "Unstructured",
    "WorkQueue",
    "add_finalizer",
    "as_is",
    "controller_of",
    "get_condition",
    "has_finalizer",
    "kind",
    "load_config",
    "merge_diff",
    "object_predicate",
    "remove_finalizer",
    "replace",
    "resource_of",
    "retry_on_conflict",
    "run_until_signalled",
    "set_condition",
    "set_controller_reference",
    "untyped",
    "update_predicate",
    "utc_now",
]
