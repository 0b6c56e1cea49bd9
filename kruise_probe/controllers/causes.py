"""Why a probe has no verdict on a pod: causes that need action. Pure functions.

A verdict is a result of the current handler, Succeeded or Failed. A command that always times out has none, although its
state is Failed.
"""

from typing import Final

from kruise_probe.api.messages import code_of
from kruise_probe.api.names import CODE_EXEC_STUCK
from kruise_probe.api.node_pod_probe import ContainerProbeState
from kruise_probe.api.pods import Pod
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.controllers.compiled import CompiledProbe
from kruise_probe.controllers.limits import LIMITS, UNSUPPORTED, LeftOut

CONTAINER_NOT_FOUND: Final = "ContainerNotFound"
NO_DAEMON: Final = "NoDaemon"

CAUSES: Final = {
    CONTAINER_NOT_FOUND: "a pod has no such container. Correct containerName in the marker",
    NO_DAEMON: "no daemon runs on the node. Check that the DaemonSet of kruise-probe has a pod there, and read its log",
    "ExecImpossible": "the program does not exist in the container, or is not executable. Correct the command, or the image",
    "PortNameUnknown": "the container has no port of that name. Correct the port in the marker, or name it in the pod",
    CODE_EXEC_STUCK: "the command times out every time. Make it faster, or end what keeps its output open",
    "ExecOutputTooLarge": "the command prints more than 1 MiB. Print less",
    "NoValue": "the output or body has no value that extract names. Correct extract, or set its default",
    "AddressNotAllowed": "the pod's address is not one of its node. Find out who writes pods/status or NodePodProbes",
    "RuntimeUnavailable": "the container runtime does not answer. Check the runtime of the node",
    "NodeResources": "the node has no descriptors, ports or buffers left. Free them, or raise the daemon's limits",
    "ProberError": "kruise-probe has a defect. Report it with the daemon's log",
    **{limit.reason: limit.why for limit in LIMITS},
    **{unsupported.reason: unsupported.why for unsupported in UNSUPPORTED},
}
"""By reason, in the order in which a marker reports them: what is wrong, and what to do."""


def verdict_of(state: ContainerProbeState | None) -> tuple[bool, str]:
    """Whether a state is a verdict; if not, its cause, or an empty string if no action is needed.

    The daemon begins a message without a verdict with the cause and a colon.
    """
    if state is None:
        return False, ""
    message = state.message or ""
    cause = code_of(message)
    if state.state == ProbeState.SUCCEEDED:
        return True, ""
    if state.state == ProbeState.FAILED:
        if cause == CODE_EXEC_STUCK:
            return False, CODE_EXEC_STUCK
        return True, ""
    if state.state == ProbeState.UNKNOWN and cause in CAUSES:
        return False, cause
    return False, ""


def cause_on(
    probe: CompiledProbe,
    pod: Pod,
    unsupported: LeftOut | None,
    *,
    is_absent: bool,
) -> str:
    """Why a probe cannot have a state on a pod; `is_absent`: the node never showed a sign of a daemon."""
    if unsupported is not None:
        return unsupported.reason
    if pod.container(probe.container) is None:
        return CONTAINER_NOT_FOUND
    if is_absent:
        return NO_DAEMON
    return ""
