"""What the files contain."""

from dataclasses import dataclass, field
from typing import Final

from kruise_probe.lint.markers import WrittenMarker
from kruise_probe.lint.nodes import PodTemplate

INJECTED_CONTAINERS: Final = frozenset(
    {"istio-proxy", "linkerd-proxy", "kuma-sidecar", "consul-dataplane", "daprd", "vault-agent"}
)
"""Containers that webhooks of common products add to pods."""


@dataclass
class FileContents:
    """What the files contain.

    Attributes:
        unclear_file: the first file whose objects are not all known. A missing object may be in it.
        all_pods: whether all pods are in `templates`; False if a custom resource may create others.
        added_containers: containers that SidecarSets and webhooks add.
    """

    markers: list[WrittenMarker] = field(default_factory=list)
    templates: list[PodTemplate] = field(default_factory=list)
    unclear_file: str | None = None
    all_pods: bool = True
    added_containers: set[str] = field(default_factory=lambda: set(INJECTED_CONTAINERS))
