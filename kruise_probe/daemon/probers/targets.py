"""The address of a probe: the pod's IP (see `daemon.aim`) and a port number.

Source: kubelet pkg/probe/util.go (ResolveContainerPort).
Differs: the manager resolves port names before it writes the NodePodProbe; a remaining name is an error.
"""

from functools import lru_cache
from ipaddress import ip_address

from kruise_probe.daemon.probers.dialing import Address
from kruise_probe.daemon.probers.prober import (
    REASON_ADDRESS_NOT_ALLOWED,
    REASON_INVALID_PROBE,
    REASON_POD_IP_UNKNOWN,
    REASON_PORT_NAME_UNKNOWN,
    CouldNotProbe,
    Target,
)


def address_of(target: Target, port: int | str) -> Address:
    """The pod's IP and the port number.

    Raises:
        CouldNotProbe: the pod has no IP, its IP must not be dialled, or the port is unknown.
    """
    number = port_number(port)
    if target.refusal:
        raise CouldNotProbe(REASON_ADDRESS_NOT_ALLOWED, target.refusal)
    if not target.pod_ip:
        raise CouldNotProbe(REASON_POD_IP_UNKNOWN, "the pod has no IP yet")
    if not _is_ip(target.pod_ip):
        raise CouldNotProbe(
            REASON_POD_IP_UNKNOWN, f"the pod's IP {target.pod_ip!r} is not an IP address"
        )
    return Address(target.pod_ip, number)


@lru_cache(maxsize=1024)
def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def port_number(port: int | str) -> int:
    """The port number, also of a string of digits.

    Raises:
        CouldNotProbe: the port is a name, or its number is out of range.
    """
    if isinstance(port, str):
        if not (port.isascii() and port.isdigit()):
            raise CouldNotProbe(
                REASON_PORT_NAME_UNKNOWN,
                f"port {port} not found: the container has no port of this name",
            )
        port = int(port)
    if not 0 < port < 65536:
        raise CouldNotProbe(REASON_INVALID_PROBE, f"invalid port number: {port}")
    return port
