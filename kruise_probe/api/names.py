"""Names visible to other programs: groups, finalizers, annotations, reasons, field managers; and names of probes.

Only this module parses and formats `<marker>#<probe>`. All other code compares typed keys, never substrings.
(Kruise compares substrings, so deleting marker `way` also deletes probes `gateway#…`.)

Source: Kruise apis/apps/v1alpha1 and pkg/controller/podprobemarker, for names that Kruise's manager and daemon use.
Differs: reasons, field managers and Leases are additions; Kruise has none.
"""

from typing import Final, NamedTuple, Self

GROUP: Final = "apps.kruise.io"
VERSION: Final = "v1alpha1"

MARKER_FINALIZER: Final = "kruise.io/node-pod-probe-cleanup"
SERVERLESS_PROBES_ANNOTATION: Final = "kruise.io/podprobe"
SERVERLESS_MARKERS_ANNOTATION: Final = "kruise.io/podprobemarker-list"

PAUSED_ANNOTATION: Final = "kruise-probe.io/paused"
"""On a PodProbeMarker or a pod: with the value `true` its probes do not run."""
MIRROR_POD_ANNOTATION: Final = "kubernetes.io/config.mirror"
LAST_APPLIED_ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"

DELETION_COST_ANNOTATION: Final = "controller.kubernetes.io/pod-deletion-cost"

MANAGER_FIELD_MANAGER: Final = "kruise-probe-manager"
DAEMON_FIELD_MANAGER: Final = "kruise-probe-daemon"
ANCIENT_FIELD_MANAGER: Final = "ancient-changes"
"""The API server merges the entries of the oldest field managers into this one if an object has more than ten."""

SYSTEM_NAMESPACE: Final = "kruise-system"
LEADER_ELECTION_ID: Final = "kruise-probe-manager"
DAEMON_LEASE_PREFIX: Final = "kruise-probe-"

WEBHOOK_SECRET: Final = "kruise-probe-webhook-certs"
WEBHOOK_SERVICE: Final = "kruise-probe-webhook"
WEBHOOK_CONFIGURATION: Final = "kruise-probe"
VALIDATE_MARKERS: Final = "/validate-apps-kruise-io-v1alpha1-podprobemarker"
MUTATE_PODS: Final = "/mutate-pod"
"""Paths of the webhook. `manifests/webhook.yaml` has them too."""

EVENT_COMPONENT: Final = "kruise-daemon-podprobe"
EVENT_SUCCEEDED: Final = "KruiseProbeSucceeded"
EVENT_FAILED: Final = "KruiseProbeFailed"
EVENT_UNKNOWN: Final = "KruiseProbeUnknown"

REASON_DAEMON_STALE: Final = "ProbeDaemonStale"
REASON_NOT_HOLDER: Final = "NotHolder"
CODE_WAITING_FOR_POD: Final = "WaitingForPod"
"""Begins the message of a condition with REASON_NOT_HOLDER, if its pod is the holder and must wait for another pod's write."""
CODE_EXEC_STUCK: Final = "ExecStuck"
"""Begins the message of a command that times out every time. It is no verdict."""
REASON_PROBE_REMOVED: Final = "ProbeRemoved"
REASON_PAUSED: Final = "ProbePaused"
REASON_WAITING_FOR_MANAGER: Final = "WaitingForManager"
REASON_POD_FINISHED: Final = "PodFinished"
REASON_CONTAINER_FINISHED: Final = "ContainerFinished"
REASON_NO_ROOM: Final = "NoRoom"
REASON_TOO_MANY_MARKERS: Final = "TooManyMarkers"
REASON_TOO_MANY_PROBES: Final = "TooManyProbes"
REASON_TOO_MANY_KEYS: Final = "TooManyKeys"
REASON_ENTRY_TOO_LARGE: Final = "EntryTooLarge"
REASON_ANNOTATIONS_FULL: Final = "AnnotationsFull"
REASON_FIELD_PRUNED: Final = "FieldPruned"
REASON_FIELD_NOT_SUPPORTED: Final = "FieldNotSupported"
LEFT_OUT_REASONS: Final = (
    REASON_NO_ROOM,
    REASON_TOO_MANY_MARKERS,
    REASON_TOO_MANY_PROBES,
    REASON_TOO_MANY_KEYS,
    REASON_ENTRY_TOO_LARGE,
)
"""Condition reasons of probes that do not run because of a limit."""
FIELD_REASONS: Final = (REASON_FIELD_PRUNED, REASON_FIELD_NOT_SUPPORTED)
"""Condition reasons of probes with a field that a CRD or their prober does not know."""

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


LEADER_LEASE_NODE: Final = LEADER_ELECTION_ID.removeprefix(DAEMON_LEASE_PREFIX)
"""Node name whose daemon's Lease would collide with the managers' leader election Lease."""


def node_user(node: str) -> str:
    """The user of a node's kubelet, and of a daemon with --own-node-reads while it reads."""
    return f"system:node:{node}"


def daemon_lease_name(node: str) -> str:
    """Name of the heartbeat Lease of the daemon on `node`.

    `LEADER_LEASE_NODE` gets one more hyphen. That never collides, as no node name begins with a hyphen.
    """
    if node == LEADER_LEASE_NODE:
        node = f"-{node}"
    return f"{DAEMON_LEASE_PREFIX}{node}"


def node_of_daemon_lease(name: str) -> str:
    """Node whose daemon renews the Lease of this name; empty if it is not the Lease of a daemon."""
    node = name.removeprefix(DAEMON_LEASE_PREFIX).removeprefix("-")
    return node if daemon_lease_name(node) == name else ""


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
