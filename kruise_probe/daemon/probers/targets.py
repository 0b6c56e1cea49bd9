"""Where a probe may go: the pod's own address (see `daemon.aim`), and a port with a number.

Source: kubelet pkg/probe/util.go (ResolveContainerPort).
Differs: names of ports were resolved by whoever wrote the NodePodProbe; one that is left cannot be known here.
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
    """The pod's address and the port's number.

    Raises:
        CouldNotProbe: the pod has no address yet, or one that must not be dialled, or the port is a name without a number.
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
    """The number, also when it came as text.

    Raises:
        CouldNotProbe: a name, or a number that no port has.
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
