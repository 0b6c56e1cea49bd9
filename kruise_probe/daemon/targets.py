"""The target of a probe: its container as the runtime reports it, and the address to dial."""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from kruise_probe.daemon.cri.containers import ContainerView
from kruise_probe.daemon.cri.runtime import ContainerState
from kruise_probe.daemon.diff import DesiredProbe
from kruise_probe.daemon.probers.prober import Reason, Target


class Containers(Protocol):
    """The containers of this node, by the newest list of the runtime."""

    @property
    def available(self) -> bool:
        """Whether the runtime responds; while it does not, the state of every container is unknown."""
        ...

    def find(self, pod_uid: str, container_name: str) -> ContainerView | None: ...

    def subscribe(
        self, pod_uid: str, container_name: str, callback: Callable[[], None]
    ) -> Callable[[], None]:
        """Call `callback` when this container or `available` changes; return the function that unsubscribes."""
        ...

    def request_list(self) -> None:
        """Request one list of the runtime's containers ahead of schedule."""
        ...


class HostAddresses(Protocol):
    """The addresses of this node."""

    def refusal(self, ip: str) -> str:
        """Why `ip` must not be dialled for a pod in the host's network; empty when it may."""
        ...


_NO_ADDRESS: Final = (
    "the runtime reports no address of the pod's sandbox, so {ip} is not dialled; "
    "look for errors of the network plugin in the pod's events"
)


class NotRunning(NamedTuple):
    """There is no running container; `message` has the reason."""

    message: str


def running_container(
    containers: Containers, desired: DesiredProbe
) -> ContainerView | NotRunning | None:
    """The running container of the probe, or why there is none; None while the runtime is unavailable."""
    if not containers.available:
        return None
    name = desired.key.container
    view = containers.find(desired.key.pod_uid, name)
    if view is None:
        return NotRunning(
            f"{Reason.CONTAINER_NOT_CREATED}: the runtime has no container {name} of pod {desired.pod}; "
            "the pod's events show why"
        )
    if view.state is not ContainerState.RUNNING:
        why = f": {view.problem}" if view.problem else ""
        return NotRunning(
            f"{Reason.CONTAINER_NOT_RUNNING}: container {name} is {view.state.value}{why}"
        )
    return view


def target_of(view: ContainerView, desired: DesiredProbe, node: HostAddresses) -> Target:
    """The address to probe: the one in the spec if the sandbox has it, else the sandbox's first address.

    So a probe never leaves its pod, whatever the NodePodProbe contains. A new sandbox is probed at once, before the
    spec has its address. A pod in the host's network is probed at an address of the node.
    """
    pod_ip, refusal = desired.ip, ""
    if view.ips:
        pod_ip = pod_ip if pod_ip in view.ips else view.ips[0]
    elif pod_ip:
        refusal = node.refusal(pod_ip) if view.host_network else _NO_ADDRESS.format(ip=pod_ip)
    return Target(
        pod_ip="" if refusal else pod_ip,
        container_id=view.id,
        refusal=refusal,
        namespace=desired.pod.namespace,
        pod_uid=desired.key.pod_uid,
    )
