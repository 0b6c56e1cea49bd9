"""Names that other programs see: groups, finalizers, annotations, reasons, field managers.

One place, so that manager, daemon, manifests, documents and black-box checks agree.

Source: Kruise apis/apps/v1alpha1 and pkg/controller/podprobemarker for what Kruise's halves must recognise.
Differs: reasons, field managers and the Lease are ours; Kruise has none.
"""

from typing import Final

GROUP: Final = "apps.kruise.io"
VERSION: Final = "v1alpha1"
GROUP_VERSION: Final = f"{GROUP}/{VERSION}"

MARKER_FINALIZER: Final = "kruise.io/node-pod-probe-cleanup"
SERVERLESS_PROBES_ANNOTATION: Final = "kruise.io/podprobe"
SERVERLESS_MARKERS_ANNOTATION: Final = "kruise.io/podprobemarker-list"

MIRROR_POD_ANNOTATION: Final = "kubernetes.io/config.mirror"
LAST_APPLIED_ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"
DELETION_COST_ANNOTATION: Final = "controller.kubernetes.io/pod-deletion-cost"
VIRTUAL_NODE_LABEL: Final = "type"
VIRTUAL_NODE_VALUE: Final = "virtual-kubelet"

MANAGER_FIELD_MANAGER: Final = "kruise-probe-manager"
DAEMON_FIELD_MANAGER: Final = "kruise-probe-daemon"

SYSTEM_NAMESPACE: Final = "kruise-system"
LEADER_ELECTION_ID: Final = "kruise-probe-manager"
AGENT_LEASE_PREFIX: Final = "kruise-probe-"

EVENT_COMPONENT: Final = "kruise-daemon-podprobe"
EVENT_SUCCEEDED: Final = "KruiseProbeSucceeded"
EVENT_FAILED: Final = "KruiseProbeFailed"

REASON_AGENT_STALE: Final = "ProbeAgentStale"
REASON_PROBE_REMOVED: Final = "ProbeRemoved"
REASON_NO_ROOM: Final = "NoRoom"
REASON_TOO_MANY_MARKERS: Final = "TooManyMarkers"
REASON_ENTRY_TOO_LARGE: Final = "EntryTooLarge"
LEFT_OUT_REASONS: Final = (REASON_NO_ROOM, REASON_TOO_MANY_MARKERS, REASON_ENTRY_TOO_LARGE)
"""Reasons of conditions whose probe a limit keeps from running."""

NATIVE_POD_CONDITIONS: Final = frozenset(
    {
        "PodScheduled",
        "PodReadyToStartContainers",
        "Initialized",
        "ContainersReady",
        "Ready",
        "DisruptionTarget",
        "PodResizePending",
        "PodResizeInProgress",
        "AllContainersRestarting",
    }
)


LEADERS_NAMESAKE: Final = LEADER_ELECTION_ID.removeprefix(AGENT_LEASE_PREFIX)
"""The one node whose Lease would be the managers'."""


def agent_lease_name(node: str) -> str:
    """Name of the Lease by which the daemon of `node` shows that it lives.

    The leader's namesake gets one more hyphen: that makes a Lease of no other node, as no node's name begins with it.
    """
    return f"{AGENT_LEASE_PREFIX}{'-' if node == LEADERS_NAMESAKE else ''}{node}"


def node_of_agent_lease(name: str) -> str:
    """The node whose daemon renews the Lease of this name; empty for a Lease of something else."""
    node = name.removeprefix(AGENT_LEASE_PREFIX).removeprefix("-")
    return node if agent_lease_name(node) == name else ""
