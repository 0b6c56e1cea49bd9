"""A link is one step from a marker to its marks on a pod. Its state, its input, and what to do if it is broken."""

from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.names import PAUSED_ANNOTATION, REASON_PAUSED
from kruise_probe.api.v1alpha1 import (
    ContainerProbe,
    ContainerProbeState,
    PodContainerProbe,
    PodProbe,
    PodProbeMarker,
)
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.limits import ENTRY_TOO_LARGE, NO_ROOM, TOO_MANY_MARKERS, LeftOut
from kruise_probe.controllers.markers.conditions import listed
from kruise_probe.controllers.pods.claims import Claim, ClaimConflict
from kruise_probe.inspection.snapshot import SeenPod, Snapshot
from kruise_probe.inspection.views import JsonView


class LinkState(StrEnum):
    """A waiting link resolves by itself; a broken one needs action."""

    OK = "ok"
    WAITING = "waiting"
    BROKEN = "broken"


class Link(JsonView, frozen=True):
    """One step from a marker to its marks, also in `-o json`.

    Attributes:
        text: what was found.
        reason: for programs; empty if the link is OK.
        remedy: what to do; empty if the link is OK.
    """

    name: str = msgspec.field(name="link")
    state: LinkState
    text: str
    reason: str = ""
    remedy: str = ""


class ProbeContext(NamedTuple):
    """One probe of one pod, with everything that its links are computed from.

    `entry` is the pod's entry in NodePodProbe.spec, `current` the probe in it, and `result` what the node reported.
    """

    snapshot: Snapshot
    seen: SeenPod
    source: PodProbeMarker
    marker: CompiledMarker
    probe: PodContainerProbe
    claim: Claim | None
    conflicts: tuple[ClaimConflict, ...]
    virtual: bool
    entry: PodProbe | None
    result: ContainerProbeState | None
    left_out: LeftOut | None

    @property
    def name(self) -> str:
        return f"{self.marker.key.name}#{self.probe.name}"

    @property
    def current(self) -> ContainerProbe | None:
        probes = (self.entry and self.entry.probes) or ()
        return next((probe for probe in probes if probe.name == self.name), None)

    @property
    def is_outdated(self) -> bool:
        """Whether the daemon has no result of the edited probe yet; False if it reports no hash, as Kruise's daemon."""
        reported, current = self.result and self.result.probe_hash, self.current
        return bool(reported and current and reported != current.hash)

    def conflict(self, *kinds: str) -> str:
        """The owners of what the probe may not write, of the first of `kinds` with a conflict; empty if there is none."""
        texts = (listed([str(one) for one in self.conflicts if one.kind == kind]) for kind in kinds)
        return next(filter(None, texts), "")

    def reported(self, reason: str, about: str) -> str:
        """The message of the marker's condition with this reason, if it contains `about`; or empty."""
        messages = (
            condition.message
            for condition in (self.source.status and self.source.status.conditions) or ()
            if condition.reason == reason and about in condition.message
        )
        return next(messages, "")


def ok(name: str, text: str = "") -> Link:
    return Link(name, LinkState.OK, text)


def waiting(name: str, reason: str, text: str, remedy: str = "") -> Link:
    return Link(name, LinkState.WAITING, text, reason, remedy or remedy_of(reason))


def broken(
    name: str, reason: str, text: str, remedy: str = "", *, about: NamespacedName | None = None
) -> Link:
    """A link that needs action; `about` is the pod that the commands of its remedy name."""
    return Link(name, LinkState.BROKEN, text, reason, remedy or remedy_of(reason, about))


def paused(name: str, what: str, kind: str, key: NamespacedName) -> Link:
    """The link of a paused object; `kind` as kubectl names it."""
    remedy = f"remove the annotation to resume: kubectl annotate {kind} {key.name} -n {key.namespace} {PAUSED_ANNOTATION}-"
    return waiting(name, REASON_PAUSED, paused_text(what), remedy)


def paused_text(what: str) -> str:
    return f"{what} has the annotation {PAUSED_ANNOTATION}=true, so its probes are paused; conditions and marks stay"


def remedy_of(reason: str, about: NamespacedName | None = None, container: str = "") -> str:
    """What to do about a broken or waiting link: one sentence, with commands to paste at its end.

    The commands name the object that the link is about, and its container.
    """
    namespace, name = about or ("", "")
    return _REMEDIES.get(reason, "").format(
        object=f"{name} -n {namespace}", namespace=namespace, container=container
    )


def unknown_remedy(reason: str, pod: NamespacedName, container: str) -> str:
    """The remedy for an Unknown result; `reason` is the first word of its message."""
    return remedy_of(reason, pod, container) or "read the message and the daemon's log on that node"


def manager_remedy(*, virtual: bool = False) -> str:
    """The remedy for a write that the manager has not made; `virtual` nodes need another feature gate."""
    gate = "EnablePodProbeMarkerOnServerless" if virtual else "PodProbeMarkerGate"
    return (
        f"check that the manager runs with its feature gate {gate} on, and read its log: "
        "kubectl -n kruise-system get pods; kubectl -n kruise-system logs -l app.kubernetes.io/component=manager"
    )


_REMEDIES: Final = {
    "NoPods": "a marker selects pods of its own namespace only; compare with: kubectl get pods -n {namespace} --show-labels",
    "GateUnwritten": "set podConditionType of a marker to the gate's name; the gates of an existing pod cannot change",
    "GateClosed": "nothing: the pod is not Ready until this probe succeeds",
    "GateOfOthers": "find out which component writes it; a probe does so if its podConditionType is the gate's name",
    "MarkerDeleting": "wait; if it stays, check that a manager runs, and what the marker's status says: "
    "kubectl describe podprobemarker {object}",
    "MarkerHeld": "kruise-probe has removed its own finalizer; remove the other one, or fix the component that added it",
    "InvalidSpec": "correct the field that is named, and apply the marker again",
    "WritesLimited": "remove a label that these markers both write and select by, or stop the client that reverts marks",
    "PodTerminating": "nothing: its replacement is probed as soon as it runs",
    "PodFinished": "nothing: completed pods are not probed",
    "StaticPod": "run it as an ordinary pod, such as a pod of a DaemonSet",
    "PodNotScheduled": "find out why it has no node: kubectl describe pod {object}",
    "NodeNotFound": "delete the pod, or wait until it is replaced; its node was deleted",
    "PodNotStarted": "find out why the kubelet has not started it: kubectl describe pod {object}",
    "PodNotInitialized": "find out what its init containers wait for: kubectl describe pod {object}",
    "ContainerNotFound": "correct containerName in the marker",
    "ContainerNotProbed": "set containerName to a regular container or a sidecar",
    "ContainerNotRunning": "find out why it does not run: kubectl describe pod {object}; "
    "kubectl logs {object} -c {container} --previous",
    "ContainerNotStarted": "nothing: probes start when the startupProbe has succeeded",
    "PortNameUnknown": "give the container a port of that name, or use the port's number in the probe",
    "MarkerNew": "look again in a few seconds",
    "ResultNew": "look again in a few seconds",
    "ValueNew": "look again after the manager's --message-update-interval",
    "ValueInvalid": "correct regex in the marker, or what the probe prints; a label has at most 63 letters, digits, '-', '_' and '.'",
    "NoDaemon": "if kruise-probe runs in another namespace, set --system-namespace; otherwise check the node's taints, and that "
    "the DaemonSet has a pod on this node: kubectl -n kruise-system get pods -o wide",
    "ProbeDaemonStale": "check the daemon's pod on that node, and that the node is Ready",
    "NoResultYet": "look again after that time",
    "ResultOutdated": "look again after the next period of the probe",
    "ExecStuck": "make the command faster, or raise timeoutSeconds (default 1); if it ends in time, end its child processes, "
    "or run an init process in the container",
    "ResultOverdue": "check the node's container runtime and the daemon's log on that node; "
    "alternating attempt results never reach a threshold above 1",
    "NotInjected": "install gate and webhook, then create the pod again: kruise-probe manifests --webhook "
    "--feature-gates=EnablePodProbeMarkerOnServerless=true | kubectl apply --server-side -f -",
    "ConditionTypeMissing": "set podConditionType of the probe: a provider reports results only as conditions",
    "ProviderSilent": "check that the provider supports the PodProbeMarker protocol",
    "Conflict": "use another name in one of the two probes",
    "PodNotMarked": "correct what the API server names; often a policy or a webhook on pods/status refuses the write",
    **{each.reason: each.remedy for each in (NO_ROOM, TOO_MANY_MARKERS, ENTRY_TOO_LARGE)},
    "NodesBehind": "read the manager's log: it names what refuses the write",
    "ContainerRestarted": "wait for the initial delay of the new container",
    "ExecOutputTooLarge": "print less than 1 MiB; only the first 1,024 bytes become the message",
    "ExecImpossible": "check that the program exists in the container's image and is executable",
    "ExecQueued": "end commands that hang, lower timeoutSeconds (10 or less), or run fewer exec probes; "
    "if other pods hold the places, raise --max-concurrent-execs of the daemon or move the pod",
    "AttemptQueued": "make the port respond in time, lower timeoutSeconds (10 or less), or run fewer probes; "
    "if other pods hold the places, raise the daemon's limit of open files or move the pod",
    "ContainerNotCreated": "find out why the runtime has not created the container: kubectl describe pod {object}",
    "PodIPUnknown": "find out why the pod has no address: kubectl describe pod {object}",
    "AddressNotAllowed": "if the pod's IP is no address of its node, find out who writes pods/status or NodePodProbes: "
    "kubectl get pod {object} -o wide",
    "NodeResources": "free the node's file descriptors, local ports or socket memory, or raise the daemon's limit of open files",
    "RuntimeUnavailable": "delete the pod, or restart the node's container runtime, which no longer answers for this container",
    "InvalidProbe": "correct the probe as the message says",
}
"""By the reason of a link, or by the first word of the message of an Unknown result."""
