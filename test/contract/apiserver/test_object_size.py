"""The largest NodePodProbe that manager and daemon write: an API server stores it, in the size that both compute."""

import msgspec
from contract.contract_api import Api, node_pod_probe
from support.cases import cases
from support.computations import at_once

from kruise_probe.api.node_pod_probe import (
    MAX_OBJECT_BYTES,
    ContainerProbeState,
    NodePodProbeSpec,
    NodePodProbeStatus,
    PodProbe,
    PodProbeStatus,
    stored_bytes,
)
from kruise_probe.api.probe import ExecAction, Probe
from kruise_probe.api.resources import NODE_POD_PROBES
from kruise_probe.api.v1alpha1 import ContainerProbe
from kruise_probe.controllers import budget
from kruise_probe.daemon import status as daemon_status
from kruise_probe.daemon.status import METADATA_BYTES

PROBES = ("game#idle", "game#healthy", "game#players")
PROBE = Probe(
    exec=ExecAction(command=("sh", "-c", "cat /state")),
    period_seconds=10,
)
STAMP = "2026-01-01T00:00:00Z"


def spec_of(pods: int) -> NodePodProbeSpec:
    probes = tuple(ContainerProbe(name, "main", PROBE) for name in PROBES)
    entries = []
    for number in range(pods):
        uid = f"00000000-0000-0000-0000-{number:012}"
        entries.append(PodProbe(f"web-{number}", "default", uid, "10.0.0.1", probes))
    return NodePodProbeSpec(tuple(entries))


def status_of(spec: NodePodProbeSpec, message: str) -> NodePodProbeStatus:
    statuses = []
    for entry in spec.pod_probes:
        states = [
            ContainerProbeState(probe.name, "Succeeded", STAMP, STAMP, message, "0123456789abcdef")
            for probe in entry.probes
        ]
        statuses.append(
            PodProbeStatus(
                entry.name,
                entry.namespace,
                entry.uid,
                tuple(states),
            )
        )
    return NodePodProbeStatus(tuple(statuses))


async def store(api: Api, spec: NodePodProbeSpec, message: str) -> NodePodProbeStatus:
    """Write the spec as the manager does and the status as the daemon does; return the stored status."""
    name = f"node-{api.unique}"
    await api.create(
        "nodepodprobes",
        node_pod_probe(name, labels={"contract": api.unique}),
    )
    path = api.path("nodepodprobes", name)
    patched = await api.merge(
        path,
        msgspec.to_builtins({"spec": spec}),
    )
    assert patched.code == 200, patched
    fitted = daemon_status.encode(
        status_of(spec, message),
        stored_bytes(spec),
    )
    update = daemon_status.update_of(fitted.body, name, patched.revision)
    written = await api.put(path + "/status", update)
    assert written.code == 200, written

    found = await api.get(path)
    encoded = found.text.encode()
    stored = NODE_POD_PROBES.decode(encoded)
    assert (stored.spec, stored.status) == (spec, fitted.status)
    computed = stored_bytes(spec) + stored_bytes(fitted.status)
    assert computed <= MAX_OBJECT_BYTES
    if api.real:  # It answers in the encoding in which it stores custom resources.
        assert computed < len(encoded) < computed + METADATA_BYTES
    return fitted.status


@cases(
    "letter",
    plain="x",
    escaped_in_six_bytes="<",
    three_bytes_escaped_in_six="\u2028x",
    two_bytes="é",
)
async def test_a_status_of_500_pods_with_three_full_messages_is_stored(
    api: Api, letter: str
) -> None:
    message = letter * (1024 // len(letter.encode()))
    fitted = await store(api, spec_of(500), message)
    states: list[ContainerProbeState] = []
    for pod in fitted.pod_probe_statuses or ():
        states += pod.probe_states or ()
    assert len(states) == 1500
    assert all(0 < len(state.message or "") < len(message) for state in states)


async def test_the_largest_spec_of_the_manager_leaves_room_for_every_state(api: Api) -> None:
    spec = spec_of(1500)
    parts: list[budget.PodPart] = []
    for entry in spec.pod_probes:
        group = budget.group_of("game", 0, entry.probes)
        parts.append(
            budget.pod_part(
                entry,
                budget.pod_probes([group]),
                (),
            )
        )
    entries = at_once(budget.fit_steps(parts, ())).entries
    await store(api, NodePodProbeSpec(entries), "fine")
