"""Edits of a simulated cluster: what users, kubelets and other controllers do.

Each one is a function of a world and of plain values, so a plan can be printed, shortened and run again.
"""

from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

from simulation.world import NAMESPACE, NODE_NAMES, POD_NAMES, World
from support import strategies
from support.builders import pod_wire, probe_wire
from support.fake_runtime import FakeContainer
from support.wire import Json, typed

from kruise_probe.api.meta import Resource
from kruise_probe.api.names import (
    MANAGER_FIELD_MANAGER,
    PAUSED_ANNOTATION,
    SYSTEM_NAMESPACE,
    daemon_lease_name,
)
from kruise_probe.api.resources import LEASES, MARKERS, NODE_POD_PROBES, NODES, PODS
from kruise_probe.api.times import format_time
from kruise_probe.client.request import PatchType
from kruise_probe.daemon.cri.runtime import ContainerState


def populate(world: World) -> None:
    """Create the nodes and the pods."""
    for name in NODE_NAMES:
        register_node(world, name)
    for number, name in enumerate(POD_NAMES):
        create_pod(world, name, NODE_NAMES[number % 2])


def register_node(world: World, node: str) -> None:
    if world.get(NODES, node) is None:
        world.post(NODES.path(), {"metadata": {"name": node}})


def create_pod(
    world: World,
    name: str,
    node: str,
    app: str = "web",
    ip: str = "",
) -> None:
    wire = pod_wire(name, node=node, ip=ip or _ip(name))
    wire["metadata"] = {"name": name, "labels": {"app": app}}
    wire["spec"]["containers"] = [{"name": "main", "image": "none"}]
    wire["spec"]["restartPolicy"] = "OnFailure"
    created = world.post(PODS.path(NAMESPACE), wire)
    if created:
        world.merge_status(name, wire["status"])
        _start_container(
            world,
            name,
            node,
            created["metadata"]["uid"],
        )


def delete_pod(world: World, name: str) -> None:
    runtime = world.runtimes[node_of(world, name)]
    if _delete(world, PODS, name):
        container = world.containers.pop(name)
        runtime.stop(container)
        runtime.remove(container)


def terminate_pod(world: World, name: str, seconds: float) -> None:
    """Delete a pod whose containers end after `seconds`."""
    uid = uid_of(world, name)

    def end() -> None:
        if uid_of(world, name) == uid:
            delete_pod(world, name)

    if uid:
        world.request("DELETE", PODS.path(NAMESPACE, name))
        world.after(seconds, f"end of {name}", end)


def replace_pod(world: World, name: str, node: str) -> None:
    """Delete a pod, and create another one of its name."""
    pod = world.get(PODS, name)
    app = pod["metadata"]["labels"]["app"] if pod else "web"
    delete_pod(world, name)
    create_pod(world, name, node, app)


def restart_container(world: World, name: str, down_seconds: float) -> None:
    """Stop the container of a pod, and start it again."""
    container = world.containers.get(name)
    if container and not has_completed(container):
        world.runtimes[node_of(world, name)].stop(container)
        world.after(down_seconds, f"start {name}", partial(_start_again, world, name, container))


def has_completed(container: FakeContainer) -> bool:
    """Whether the kubelet does not restart it."""
    return container.state is ContainerState.EXITED and container.exit_code == 0


def delay_initialization(world: World, name: str, seconds: float) -> None:
    """The kubelet reports for `seconds` that the pod is not initialized."""
    _set_initialized(world, name, "False")
    world.after(seconds, f"{name} is initialized", partial(_set_initialized, world, name, "True"))


def move_ip(world: World, name: str, ip: str) -> None:
    if uid_of(world, name):
        world.merge_status(name, {"podIP": ip})


def label(world: World, name: str, app: str) -> None:
    """Set the label that the markers select by."""
    world.merge(PODS, name, {"metadata": {"labels": {"app": app}}})


def overwrite_mark(
    world: World,
    name: str,
    mark: str,
    value: str | None,
) -> None:
    """Overwrite or remove a mark, as `labels.KEY`, with our manager's field manager."""
    part, key = mark.split(".")
    if uid_of(world, name):
        path = PODS.path(NAMESPACE, name, "status")
        change = {"metadata": {part: {key: value}}}
        world.request(
            "PATCH",
            f"{path}?fieldManager={MANAGER_FIELD_MANAGER}",
            change,
            PatchType.MERGE,
        )


def pause(world: World, name: str, value: str | None) -> None:
    """Pause or resume the probes of a pod or of a marker."""
    resource: Resource[Any] = PODS if name in POD_NAMES else MARKERS
    if world.get(resource, name):
        world.merge(resource, name, {"metadata": {"annotations": {PAUSED_ANNOTATION: value}}})


def set_outcome(
    world: World,
    pod: str,
    command: str,
    code: int,
    output: str,
) -> None:
    """Set the exit code and the output of a command in a pod."""
    world.outcomes[pod, command] = (code, output)


def put_marker(world: World, name: str, variant: int) -> None:
    """Create or edit a marker. `variant` is the seed of its probes and its selector."""
    spec = marker_spec(name, Random(variant))
    if world.get(MARKERS, name) is None:
        create_marker(world, name, spec)
    else:
        world.merge(MARKERS, name, {"spec": spec})


def create_marker(world: World, name: str, spec: Json) -> Json | None:
    body = typed("PodProbeMarker", metadata={"name": name}, spec=spec)
    return world.post(MARKERS.path(NAMESPACE), body)


def drop_marker(world: World, name: str) -> None:
    """Delete a marker."""
    _delete(world, MARKERS, name)


def marker_spec(name: str, random: Random) -> Json:
    """One to three probes; names, conditions and keys collide often."""
    names = random.choice([("p",), ("p", "way"), ("pp", "p", "way")])
    probes = []
    conditions: set[str] = set()
    for probe_name in names:
        condition = random.choice(["", *strategies.CONDITIONS])
        policies = random.choice(strategies.POLICIES)
        if condition in conditions:
            condition = ""
        if not condition and not policies:
            condition = f"c/{probe_name}"
        conditions.add(condition)
        command = [f"{name}-{probe_name}", str(random.randrange(3))]
        probe = probe_wire(
            probe_name,
            condition=condition,
            policies=policies,
            handler={"exec": {"command": command}},
            periodSeconds=random.choice([3, 5, 10]),
            failureThreshold=random.choice([1, 1, 2]),
            successThreshold=random.choice([1, 1, 2]),
        )
        probes.append(probe)
    apps = random.choice([["web"], ["web"], ["web"], ["web", "db"], ["db"]])
    expression = {"key": "app", "operator": "In", "values": apps}
    return {"selector": {"matchExpressions": [expression]}, "probes": probes}


def empty_plan(world: World, node: str) -> None:
    """Remove all entries from the spec of a NodePodProbe."""
    if world.get(NODE_POD_PROBES, node):
        world.merge(NODE_POD_PROBES, node, {"spec": {"podProbes": None}})


def delete_plan(world: World, node: str) -> None:
    """Delete a NodePodProbe."""
    _delete(world, NODE_POD_PROBES, node)


def recreate_node(world: World, node: str, down_seconds: float) -> None:
    """Delete a Node, and register it again as a new object."""
    if _delete(world, NODES, node):
        world.after(down_seconds, f"register {node}", partial(register_node, world, node))


def delete_lease(world: World, node: str) -> None:
    world.request("DELETE", _lease_path(node))


def age_lease(world: World, node: str) -> None:
    """Set the renewal of a daemon's Lease two minutes back."""
    stamp = format_time(world.clock() - timedelta(seconds=120)).replace("Z", ".000000Z")
    change = {"spec": {"renewTime": stamp}}
    world.request(
        "PATCH",
        _lease_path(node),
        change,
        PatchType.MERGE,
    )


def _lease_path(node: str) -> str:
    return LEASES.path(SYSTEM_NAMESPACE, daemon_lease_name(node))


def finish_edits(world: World) -> None:
    """Complete what edits have begun, and end the pauses: marks of a paused pod depend on its history."""
    for node in NODE_NAMES:
        register_node(world, node)
    for name, container in list(world.containers.items()):
        _start_again(world, name, container)
    for name, pod in world.objects(PODS).items():
        if "deletionTimestamp" in pod["metadata"]:
            delete_pod(world, name)
        else:
            _set_initialized(world, name, "True")
    for name in (*world.objects(PODS), *world.objects(MARKERS)):
        pause(world, name, None)


def node_of(world: World, pod: str) -> str:
    found = world.get(PODS, pod)
    return found["spec"]["nodeName"] if found else NODE_NAMES[0]


def uid_of(world: World, pod: str) -> str:
    found = world.get(PODS, pod)
    return str(found["metadata"]["uid"]) if found else ""


def _ip(pod: str) -> str:
    return f"127.1.0.{POD_NAMES.index(pod) + 1}"


def _start_container(
    world: World,
    name: str,
    node: str,
    uid: str,
    attempt: int = 0,
) -> None:
    container = world.runtimes[node].start(uid, attempt=attempt, ip=_ip(name))
    container.created_at = container.started_at = world.clock()
    world.containers[name] = container


def _start_again(world: World, name: str, container: FakeContainer) -> None:
    if world.containers.get(name) is container and container.state is ContainerState.EXITED:
        _start_container(
            world,
            name,
            node_of(world, name),
            container.pod_uid,
            container.attempt + 1,
        )


def _set_initialized(world: World, name: str, status: str) -> None:
    if uid_of(world, name):
        condition = {"type": "Initialized", "status": status}
        world.request(
            "PATCH",
            PODS.path(NAMESPACE, name, "status"),
            {"status": {"conditions": [condition]}},
            PatchType.STRATEGIC_MERGE,
        )


def _delete(world: World, resource: Resource[Any], name: str) -> Json | None:
    if world.get(resource, name) is None:
        return None
    grace = "?gracePeriodSeconds=0" if resource is PODS else ""
    return world.request("DELETE", resource.path(NAMESPACE, name) + grace)
