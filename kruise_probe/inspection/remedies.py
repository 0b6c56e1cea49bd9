"""What to do about each broken link: one sentence per reason, for users with kubectl."""

from typing import Final

from kruise_probe.controllers.limits import ENTRY_TOO_LARGE, NO_ROOM, TOO_MANY_MARKERS

_LOOK_AT_MANAGER: Final = (
    "is the manager running, its gate {} on, and what does it say? "
    "kubectl -n kruise-system get pods, then kubectl logs"
)

_REMEDIES: Final = {
    "NoPods": "compare with: kubectl get pods --show-labels; a marker selects in its own namespace only",
    "GateUnwritten": "make podConditionType of a marker the gate's name; gates of a pod that exists cannot change",
    "MarkerDeleting": "wait; if it stays, is a manager running? its status says what it waits for: kubectl describe podprobemarker",
    "MarkerHeld": "nothing of it is left on nodes and pods; whoever added the finalizer has to remove it",
    "InvalidSpec": "correct the field that is named, and apply the marker again",
    "SelectorCycle": "remove one of these labels from a markerPolicy or from a selector",
    "PodTerminating": "nothing: its successor is probed as soon as it runs",
    "PodFinished": "nothing: pods that have ended are not probed",
    "StaticPod": "run it as an ordinary pod, such as one of a DaemonSet",
    "PodNotScheduled": "find out why it has no node: kubectl describe pod",
    "NodeNotFound": "wait until the pod is replaced, or delete it: its node is gone",
    "PodNotInitialized": "find out what its init containers wait for: kubectl logs -c <init container>",
    "ContainerMissing": "correct containerName in the marker",
    "ContainerNotProbed": "name a regular container or a sidecar in containerName",
    "ContainerNotRunning": "make the container run first: kubectl describe pod, kubectl logs --previous",
    "ContainerNotStarted": "nothing: probes begin once the startupProbe has succeeded",
    "PortNameUnknown": "give the container a port of that name, or write the port's number in the probe",
    "MarkerNew": "look again in a few seconds",
    "ResultNew": "look again in a few seconds",
    "NoDaemon": "does the DaemonSet run a pod there? kubectl -n kruise-system get pods -o wide; mind taints of the node; "
    "where kruise-probe runs in another namespace, name it with --system-namespace",
    "ProbeAgentStale": "look at the daemon's pod on that node, and whether the node is Ready",
    "NoVerdictYet": "look again by then",
    "VerdictOverdue": "does the node's container runtime answer? the daemon's log on that node says it; "
    "results that alternate never reach a threshold above 1",
    "NotInjected": "start the manager with EnablePodProbeMarkerOnServerless=true, then create the pod again",
    "ProviderNowhere": "give the probe a podConditionType: a provider reports through it alone",
    "ProviderSilent": "ask the provider whether it follows the PodProbeMarker protocol",
    "Conflict": "use another name in one of the two probes",
    "PodNotMarked": "the API server's words say why: often a policy or a webhook on pods/status",
    **{each.reason: each.remedy for each in (NO_ROOM, TOO_MANY_MARKERS, ENTRY_TOO_LARGE)},
    "NodesBehind": "look at the manager's log: it names what refuses the write",
    "ContainerRestarted": "wait for the initial delay of the new container",
}

_UNKNOWN_REMEDIES: Final = {
    "ExecOutputTooLarge": "let the command print less than 1 MiB; only the first 1,024 bytes become the message",
    "ExecImpossible": "the command cannot run in this container: is the program in its image, and executable?",
    "ExecQueued": "end commands that hang, lower timeoutSeconds (10 or less), or run fewer exec probes; "
    "if other pods hold the places, raise --max-concurrent-execs of the daemon or move the pod",
    "ContainerNotCreated": "the runtime has no such container yet: kubectl describe pod",
    "ContainerNotRunning": "make the container run first: kubectl describe pod, kubectl logs --previous",
    "PortNameUnknown": "give the container a port of that name, or write the port's number in the probe",
    "PodIPUnknown": "the pod has no address yet: kubectl describe pod",
    "AddressNotAllowed": "compare the pod's IP with the addresses of its node: kubectl get pod -o wide; if they differ, "
    "find out who writes pods/status or NodePodProbes",
    "RuntimeUnavailable": "the node's container runtime has lost touch with this container: delete the pod, or restart the runtime",
    "InvalidProbe": "correct the probe as the message says",
}


def remedy_of(reason: str) -> str:
    return _REMEDIES.get(reason, "")


def unknown_remedy(reason: str) -> str:
    """The remedy for an Unknown result; `reason` is the first word of its message."""
    return _UNKNOWN_REMEDIES.get(
        reason, "the message says why; the daemon's log on that node says more"
    )


def manager_remedy(trouble: str, *, virtual: bool = False) -> str:
    """The remedy for a write that the manager has not made.

    Args:
        trouble: a known reason, or empty.
        virtual: the pod is on a virtual node, which needs another feature gate.
    """
    look = _LOOK_AT_MANAGER.format(
        "EnablePodProbeMarkerOnServerless" if virtual else "PodProbeMarkerGate"
    )
    return f"{trouble}; {look}" if trouble else look
