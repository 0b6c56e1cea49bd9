"""What should run on this node, and where: the probes in the spec of its NodePodProbe, and their targets.

Source: Kruise pkg/daemon/podprobe/pod_probe_controller.go (sync), kubelet prober_manager.go (AddPod).
Differs: a changed pod IP is an edit, not a new probe. Probes are validated again here, because a NodePodProbe can be
written by hand.

A pod in the host's network has no address in its sandbox, so the address in the NodePodProbe is checked here. The
kernel's list of interfaces decides: a successful bind does not prove that an address is local. With
`net.ipv4.ip_nonlocal_bind`, which load balancers set, every bind succeeds. And not every interface address is the node's.
kube-proxy in IPVS mode assigns every Service's cluster IP to an interface; a connection to it reaches another pod.
"""

import math
import socket
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

import psutil

from kruise_probe.api.fields import Use
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import ProbeKey, ProbeName
from kruise_probe.api.node_pod_probe import NodePodProbeSpec
from kruise_probe.api.probe import Probe
from kruise_probe.api.problems import first_errors
from kruise_probe.api.times import loop_time
from kruise_probe.api.v1alpha1 import ContainerProbe
from kruise_probe.daemon.cri.containers import ContainerView
from kruise_probe.daemon.probers.prober import Target


class DesiredProbe(NamedTuple):
    """One probe in the spec: its key, its pod, the pod's address (may be empty) and its entry."""

    key: ProbeKey
    pod: NamespacedName
    ip: str
    entry: ContainerProbe

    @property
    def probe(self) -> Probe:
        """For its numbers only: `entry` may have more that decides about an attempt."""
        return self.entry.probe


def desired_probes(spec: NodePodProbeSpec | None) -> dict[ProbeKey, DesiredProbe]:
    """Every probe in `spec`, in its order; of two with the same key the first counts."""
    desired: dict[ProbeKey, DesiredProbe] = {}
    if spec is None:
        return desired
    for pod in spec.pod_probes:
        name = NamespacedName(pod.namespace, pod.name)
        for entry in pod.probes:
            probe = ProbeName.parse(entry.name)
            key = ProbeKey(pod.uid, entry.container_name, probe)
            desired.setdefault(key, DesiredProbe(key, name, pod.ip, entry))
    return desired


def invalid_reason(entry: ContainerProbe) -> str:
    """Why `entry` cannot run, as the message of its state; empty when it can.

    A number out of range is clamped, and the prober itself reports a `host` and a port that is no number (`Use.RUN`).
    """
    broken = first_errors(entry.errors(Use.RUN))
    if entry.criteria and not broken:
        # Imported here, because RE2 takes 3 MB, and most nodes have no such probe.
        from kruise_probe.api.validation import entry_pattern_errors

        broken = first_errors(entry_pattern_errors(entry))
    if not broken:
        return ""
    return f"InvalidProbe: {'; '.join(map(str, broken))}"


IPAddress = IPv4Address | IPv6Address

SERVICE_INTERFACES: Final = frozenset({"kube-ipvs0", "kube-dummy-if"})
"""Interfaces of kube-proxy and kube-router that carry addresses of Services."""

KEPT_SECONDS: Final = 30.0
"""How long the addresses are cached. Not forever: a virtual address may move to another node."""

RETRY_SECONDS: Final = 1.0
"""Least time between two reads for an address that is not found."""

_NEVER: Final = {
    "is_unspecified": "an unspecified",
    "is_loopback": "a loopback",
    "is_link_local": "a link-local",
    "is_multicast": "a multicast",
}
_RULE: Final = (
    "a pod in the host's network is probed at an address of its own node only; "
    "correct status.podIP of the pod, or IP in the NodePodProbe"
)
_NO_ADDRESS: Final = (
    "the runtime reports no address of the pod's sandbox, so {ip} is not dialled; "
    "look for errors of the network plugin in the pod's events"
)


def read_addresses() -> frozenset[IPAddress]:
    """The addresses of all interfaces, without those of Services. Raises: OSError."""
    found: set[IPAddress] = set()
    for name, addresses in psutil.net_if_addrs().items():
        interface = name.partition(":")[0]
        if interface in SERVICE_INTERFACES:
            continue
        for address in addresses:
            if address.family in (socket.AF_INET, socket.AF_INET6):
                text = address.address.partition("%")[0]
                found.add(ip_address(text))
    return frozenset(found)


@lru_cache(maxsize=256)
def refusal_of(ip: str, own: frozenset[IPAddress]) -> str:
    """Why `ip` must not be dialled, and what to do; empty when it may."""
    try:
        address = ip_address(ip)
    except ValueError:
        return f"{ip!r} is not an IP address; {_RULE}"
    for attribute, kind in _NEVER.items():
        if getattr(address, attribute):
            return f"{ip} is {kind} address; {_RULE}"
    if address not in own:
        return f"{ip} is not an address of this node; {_RULE}"
    return ""


class NodeAddresses:
    """The node's addresses, read again when the cache is old or lacks an address."""

    def __init__(self, read: Callable[[], frozenset[IPAddress]] = read_addresses) -> None:
        self._read = read
        self._own: frozenset[IPAddress] = frozenset()
        self._problem = ""
        self._read_at = -math.inf

    def refusal(self, ip: str) -> str:
        """Why `ip` must not be dialled, and what to do; empty when it may."""
        age = loop_time() - self._read_at
        refused = refusal_of(ip, self._own)
        if age >= (RETRY_SECONDS if refused else KEPT_SECONDS):
            self._reload()
            refused = refusal_of(ip, self._own)
        if refused and self._problem:
            return f"{ip} is not dialled: {self._problem}"
        return refused

    def _reload(self) -> None:
        self._read_at = loop_time()
        try:
            self._own = self._read()
            self._problem = ""
        except OSError as error:
            self._own = frozenset()
            self._problem = f"the addresses of this node cannot be read: {error}"


def target_of(view: ContainerView, desired: DesiredProbe, node: NodeAddresses) -> Target:
    """The address to probe: the one in the spec if the sandbox has it, else the sandbox's first address.

    So a probe never leaves its pod, whatever the NodePodProbe contains. A new sandbox is probed at once, before the
    spec has its address. A pod in the host's network is probed at an address of the node.
    """
    if desired.ip in view.ips:
        return Target(desired.ip, view.id)
    if view.ips:
        return Target(view.ips[0], view.id)
    if not desired.ip:
        return Target("", view.id)
    refusal = _NO_ADDRESS.format(ip=desired.ip)
    if view.host_network:
        refusal = node.refusal(desired.ip)
    if refusal:
        return Target("", view.id, refusal)
    return Target(desired.ip, view.id)
