"""Reads the objects for `status`, `explain`, `try` and `migrate` with the user's permissions; watches them for `--watch`.

Only markers and pods are required. A kind that the user may not list is left out with a note, because many users
have permissions in one namespace only.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import click

from kruise_probe import version
from kruise_probe.api.core import Lease, Node
from kruise_probe.api.errors import (
    ApiError,
    ConnectionFailed,
    FatalError,
    Forbidden,
    KubeError,
    NotFound,
    Unauthorized,
    first_of,
)
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.kinds import KubeObject, Resource
from kruise_probe.api.resources import LEASES, MARKERS, NODE_POD_PROBES, NODES
from kruise_probe.api.times import utc_now
from kruise_probe.api.v1alpha1 import NodePodProbe, PodProbeMarker
from kruise_probe.client.config import ClusterConfig, ConfigOverrides, load_config
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.inspection.kruise_objects import (
    DAEMON_SETS,
    DEFINITIONS,
    DEPLOYMENTS,
    WEBHOOK_CONFIGURATIONS,
)
from kruise_probe.inspection.snapshot import SEEN_PODS, SeenPod, Snapshot
from kruise_probe.serving.logs import configure_logs

T = TypeVar("T", bound=KubeObject)
R = TypeVar("R")

DEADLINE_SECONDS: Final = 30.0
"""Deadline for all initial lists together."""

_HIDDEN_WITHOUT: Final = {
    NODES.kind: "whether nodes exist or are virtual",
    NODE_POD_PROBES.kind: "the results that nodes reported; the states shown are those of pod conditions",
    LEASES.kind: "whether manager and daemons run",
    DEPLOYMENTS.kind: "whether Kruise's manager is installed",
    DAEMON_SETS.kind: "whether Kruise's daemon is installed",
    WEBHOOK_CONFIGURATIONS.kind: "whether Kruise's webhook is installed",
    DEFINITIONS.kind: "whose CRDs are installed",
}


def run(work: Coroutine[Any, Any, R], config: ClusterConfig) -> R:
    """Run `work`; turn API errors into one line with a remedy.

    Warnings of the informers are not logged, to keep them out of the output. `Following.notes` returns them instead.

    Raises:
        FatalError: the API server failed, refused a request, or exceeded the deadline.
    """
    configure_logs(format="text", level="error")
    try:
        return asyncio.run(work)
    except (KubeError, TimeoutError, BaseExceptionGroup) as error:
        first = first_of(error)
        if isinstance(first, KubeError):
            raise user_error(first, config) from None
        if isinstance(first, TimeoutError):
            raise FatalError(
                f"the API server of {config.source or config.server} did not send all objects within "
                f"{DEADLINE_SECONDS:g} s; try again, or read one namespace with -n"
            ) from None
        if isinstance(first, FatalError):
            raise first from None
        raise


def user_error(error: KubeError, config: ClusterConfig) -> FatalError:
    """The error with what the user can do about it."""
    source = config.source or config.server
    match error:
        case ConnectionFailed():
            return FatalError(
                f"{error}; check that the API server of {source} runs, and that it is the right one"
            )
        case Unauthorized():
            return FatalError(
                f"{error}; log in again: the API server refused the credentials of {source}"
            )
        case Forbidden():
            narrower = ", or read one namespace with -n" if "cluster scope" in error.message else ""
            return FatalError(f"{error.message}; ask for this permission{narrower}")
        case NotFound() if "podprobemarkers" in error.request:
            return FatalError(
                "the CRDs are not installed in this cluster; install them: "
                "kruise-probe manifests --crds-only | kubectl apply --server-side -f -"
            )
        case ApiError():
            return FatalError(error.message if isinstance(error, NotFound) else str(error))
        case _:
            return FatalError(str(error))


def config_of(params: Mapping[str, Any]) -> ClusterConfig:
    """The configuration for the parsed options of `query_flags`.

    Raises:
        click.UsageError: --as-group without --as.
        ConfigError: the kubeconfig is missing or malformed.
    """
    overrides = ConfigOverrides(
        context=params.get("context") or "",
        cluster=params.get("cluster") or "",
        user=params.get("user") or "",
        as_user=params.get("as_user") or "",
        as_groups=tuple(params.get("as_group") or ()),
    )
    if overrides.as_groups and not overrides.as_user:
        raise click.UsageError("--as-group needs --as")
    return load_config(params.get("kubeconfig"), overrides=overrides)


def client_of(config: ClusterConfig) -> RestClient:
    return RestClient(
        config=config,
        field_manager="kruise-probe",
        user_agent=f"kruise-probe/{version.TEXT}",
        max_in_flight=8,
    )


class Reader:
    """Lists objects once, or watches them. An empty `namespace` means all; `allowed_labels` as the manager's flag."""

    def __init__(
        self,
        client: RestClient,
        *,
        namespace: str,
        system_namespace: str,
        allowed_labels: frozenset[str] = frozenset(),
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._system_namespace = system_namespace
        self._allowed_labels = allowed_labels
        self.notes: list[str] = []

    async def read(self) -> Snapshot:
        """List everything; append to `notes` what is left out.

        Raises:
            KubeError: markers or pods cannot be listed.
        """
        async with asyncio.timeout(DEADLINE_SECONDS), asyncio.TaskGroup() as group:
            markers = group.create_task(self.list_all(MARKERS, self._namespace))
            pods = group.create_task(self.list_all(SEEN_PODS, self._namespace))
            nodes = group.create_task(self.list_if_allowed(NODES))
            node_pod_probes = group.create_task(self.list_if_allowed(NODE_POD_PROBES))
            leases = group.create_task(self.list_if_allowed(LEASES, self._system_namespace))
        return _snapshot(
            markers.result(),
            pods.result(),
            nodes.result(),
            node_pod_probes.result(),
            leases.result(),
            allowed_labels=self._allowed_labels,
        )

    async def read_pod(
        self, name: str, *, markers_optional: bool
    ) -> tuple[SeenPod | None, list[PodProbeMarker]]:
        """The pod, or None if it does not exist, and the markers of its namespace.

        Raises:
            KubeError: the pod cannot be read, or the markers cannot and are not optional.
        """
        async with asyncio.timeout(DEADLINE_SECONDS):
            try:
                markers = await self.list_all(MARKERS, self._namespace)
            except (Forbidden, NotFound) as error:
                if not markers_optional:
                    raise
                markers = []
                missing = isinstance(error, NotFound)
                why = "the CRDs are not installed" if missing else error.message
                self.notes.append(f"{why}; unknown: whether other markers own the same marks")
            try:
                pod = await self._client.get(SEEN_PODS, NamespacedName(self._namespace, name))
            except NotFound:
                return None, markers
        return pod, markers

    async def pod_names(self) -> list[str]:
        """The names of the namespace's pods, or none if the user may not list them."""
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                return [each.key.name for each in await self.list_all(SEEN_PODS, self._namespace)]
        except Forbidden:
            return []

    async def list_all(
        self, resource: Resource[T], namespace: str = "", *, name: str = ""
    ) -> list[T]:
        """List a kind, or its objects of one name; append to `notes` what cannot be decoded."""
        items: list[T] = []
        token = ""
        while True:
            page = await self._client.list_page(
                resource,
                namespace=namespace,
                continue_token=token,
                field_selector=f"metadata.name={name}" if name else "",
            )
            items += page.items
            self.notes += [
                f"{resource.kind} {each.key} cannot be read and is left out: {each.error}"
                for each in page.undecodable
            ]
            token = page.continue_token
            if not token:
                return items

    async def list_if_allowed(
        self, resource: Resource[T], namespace: str = "", *, name: str = ""
    ) -> list[T] | None:
        """As `list_all`; None, with a note, if the user may not."""
        try:
            return await self.list_all(resource, namespace, name=name)
        except Forbidden:
            self.notes.append(
                f"no permission to list {resource.plural}; unknown: {_HIDDEN_WITHOUT[resource.kind]}"
            )
            return None

    async def markers_everywhere(self) -> list[PodProbeMarker]:
        """The markers of all namespaces, or none if the user may not list them. Does not change `notes`."""
        try:
            page = await self._client.list_page(MARKERS)
        except Forbidden:
            return []
        return page.items

    @asynccontextmanager
    async def follow(self, first: Snapshot) -> AsyncIterator["Following"]:
        """Watch the kinds that `first` could read, while the body runs."""
        following = Following(
            allowed_labels=self._allowed_labels,
            markers=self._informer(MARKERS, self._namespace),
            pods=self._informer(SEEN_PODS, self._namespace),
            nodes=None if first.nodes is None else self._informer(NODES),
            node_pod_probes=None
            if first.node_pod_probes is None
            else self._informer(NODE_POD_PROBES),
            leases=None if first.leases is None else self._informer(LEASES, self._system_namespace),
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each()) for each in following.runs]
            try:
                await following.wait_for_sync()
                yield following
            finally:
                for task in tasks:
                    task.cancel()

    def _informer(self, resource: Resource[T], namespace: str = "") -> SharedInformer[T]:
        lister = ResourceListerWatcher(self._client, resource, namespace=namespace)
        return SharedInformer(lister, name=resource.plural)


class Following:
    """Informers of the same kinds. `changed` is set on every event."""

    def __init__(
        self,
        *,
        allowed_labels: frozenset[str],
        markers: SharedInformer[PodProbeMarker],
        pods: SharedInformer[SeenPod],
        nodes: SharedInformer[Node] | None,
        node_pod_probes: SharedInformer[NodePodProbe] | None,
        leases: SharedInformer[Lease] | None,
    ) -> None:
        self.changed = asyncio.Event()
        self._allowed_labels = allowed_labels
        self._markers = markers
        self._pods = pods
        self._nodes = nodes
        self._node_pod_probes = node_pod_probes
        self._leases = leases
        everything: tuple[SharedInformer[Any] | None, ...] = (
            markers,
            pods,
            nodes,
            node_pod_probes,
            leases,
        )
        self._followed = [each for each in everything if each is not None]
        for each in self._followed:
            each.add_event_handler(_ChangeHandler(self.changed))

    @property
    def runs(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        return [each.run for each in self._followed]

    async def wait_for_sync(self) -> None:
        """Wait until all informers have synced.

        Raises:
            FatalError: a watch or list failed, for example if a kind may be listed but not watched.
            TimeoutError: the server did not respond in time.
        """
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                for each in self._followed:
                    await each.wait_for_sync()
        except TimeoutError:
            for error in self._errors():
                raise FatalError(
                    f"{error}; --watch needs permission to watch what it lists"
                ) from None
            raise

    def notes(self) -> list[str]:
        """Why the objects may be stale: at most one line, because watches usually fail for the same reason."""
        return [f"not current, retrying: {error}" for error in self._errors()[:1]]

    def _errors(self) -> list[str]:
        return [each.last_error for each in self._followed if each.last_error]

    def snapshot(self) -> Snapshot:
        """The current objects of the caches."""
        return _snapshot(
            list(self._markers.lister.list()),
            list(self._pods.lister.list()),
            _listed(self._nodes),
            _listed(self._node_pod_probes),
            _listed(self._leases),
            allowed_labels=self._allowed_labels,
        )


class _ChangeHandler:
    def __init__(self, changed: asyncio.Event) -> None:
        self._changed = changed

    def on_add(self, obj: object, is_initial: bool) -> None:
        self._changed.set()

    def on_update(self, old: object, new: object) -> None:
        self._changed.set()

    def on_delete(self, last_known: object) -> None:
        self._changed.set()


def _listed(informer: SharedInformer[T] | None) -> list[T] | None:
    return None if informer is None else list(informer.lister.list())


def _snapshot(
    markers: list[PodProbeMarker],
    pods: list[SeenPod],
    nodes: list[Node] | None,
    node_pod_probes: list[NodePodProbe] | None,
    leases: list[Lease] | None,
    *,
    allowed_labels: frozenset[str],
) -> Snapshot:
    return Snapshot(
        now=utc_now(),
        markers=tuple(markers),
        pods=tuple(pods),
        nodes=_by_name(nodes),
        node_pod_probes=_by_name(node_pod_probes),
        leases=_by_name(leases),
        allowed_labels=allowed_labels,
    )


def _by_name(objects: list[T] | None) -> Mapping[str, T] | None:
    return None if objects is None else {each.key.name: each for each in objects}
