"""Typed keys of objects, probes of a marker, and probes of a pod; and the address of a server (Go net.JoinHostPort).

Only this module parses and formats `<marker>#<probe>`. All other code compares typed keys, never substrings.
(Kruise compares substrings, so deleting marker `way` also deletes probes `gateway#…`.)
"""

from typing import NamedTuple, Self


class NamespacedName(NamedTuple):
    """Namespace and name of an object; the namespace of a cluster-scoped one is empty."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ProbeName(NamedTuple):
    """A probe of a marker, as NodePodProbe names it: `<marker>#<probe>`.

    Marker names are DNS subdomains and cannot contain `#`, so the first `#` is the separator.
    """

    marker: str
    probe: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `<marker>#<probe>`; without a `#` the whole text is the probe name.

        Round trip: `str(ProbeName.parse(text)) == text` for every text with a marker part.
        """
        marker, separator, probe = text.partition("#")
        return cls(marker, probe) if separator else cls("", text)

    def __str__(self) -> str:
        return f"{self.marker}#{self.probe}" if self.marker else self.probe


class ProbeKey(NamedTuple):
    """One probe of one container of one pod; key of the daemon's workers and results."""

    pod_uid: str
    container: str
    probe: ProbeName


class HostPort(NamedTuple):
    """Host name or IP address, and port. An IPv6 address is printed in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
