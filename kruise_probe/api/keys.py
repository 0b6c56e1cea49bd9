"""Keys are types: what identifies an object, a probe of a marker, a probe of a pod.

The only owner of the `<marker>#<probe>` format. Everybody else compares typed keys; no substring of
a name ever decides whose probe it is (Kruise deletes `gateway#…` with marker `way` that way).
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

    Marker names are DNS subdomains and hold no `#`, so the first `#` separates.
    """

    marker: str
    probe: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `<marker>#<probe>`; without a `#` the whole text is the probe's name.

        Round trip: `str(ProbeName.parse(text)) == text` for every text with a marker part.
        """
        marker, separator, probe = text.partition("#")
        return cls(marker, probe) if separator else cls("", text)

    def __str__(self) -> str:
        return f"{self.marker}#{self.probe}" if self.marker else self.probe


class ProbeKey(NamedTuple):
    """One probe of one container of one pod: the key of workers and results in the daemon."""

    pod_uid: str
    container: str
    probe: ProbeName
