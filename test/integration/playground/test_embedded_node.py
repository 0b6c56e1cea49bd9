"""Pods on the embedded node do what they do on a kubelet's, as far as a process can."""

from typing import Any

from integration.processes import processes_with
from support.cases import cases
from support.hollow import probe
from support.playground import PlaygroundNamespace
from support.programs import until
from support.wire import Json

REST = "while :; do sleep 1; done"


def shell(name: str, script: str, **more: Any) -> Json:
    return {
        "name": name,
        "image": "none",
        "command": ["sh", "-c", script],
        **more,
    }


async def has_made(ns: PlaygroundNamespace, name: str, pod: str = "web") -> None:
    """Returns once the container's program has come to where it makes a file of that name."""

    async def made() -> bool:
        return (ns.folder(pod) / name).exists()

    await until(f"it has made {name}", made)


async def test_init_containers_run_one_after_the_other_and_sidecars_stay(
    ns: PlaygroundNamespace,
) -> None:
    await ns.pod(
        initContainers=[
            shell("first", "echo first >> ../order"),
            # It has started when its process has: how far that has come is the process's own affair.
            shell("side", f": > ../beside; {REST}", restartPolicy="Always"),
            shell("second", "until [ -e ../beside ]; do sleep 0.1; done; echo second >> ../order"),
        ],
        containers=[shell("main", f"echo main >> ../order; {REST}")],
    )
    pod = await ns.until(
        "runs",
        lambda pod: pod["status"].get("phase") == "Running",
    )
    first, side, _ = pod["status"]["initContainerStatuses"]
    assert (first["name"], side["name"]) == ("first", "side")
    assert first["state"]["terminated"]["reason"] == "Completed"
    assert side["started"] is True
    order = ns.folder().parent / "order"
    assert order.read_text().split()[:2] == ["first", "second"]


async def test_a_deleted_pod_is_asked_to_end_and_leaves_no_process_and_no_folder(
    ns: PlaygroundNamespace,
) -> None:
    trap = "trap 'echo asked; exit 0' TERM"
    await ns.pod(command=["sh", "-c", f"{trap}; (setsid sleep 1000 &); touch ready; {REST}"])
    await has_made(ns, "ready")
    container = ns.playground.container(ns.namespace, "web", "main")
    await ns.playground.api.delete(ns.pod_path())
    await ns.api.pods.until_gone("web", ns.namespace)

    async def nothing_is_left() -> bool:
        """A process that is killed takes a moment to die."""
        return not container.folder.parent.exists() and processes_with(container.id) == []

    await until("its folder is removed and what it had started has ended", nothing_is_left)
    assert (container.exit_code, container.log.last_line()) == (0, "asked")


SERVE_ALL = """
import os, socket, time
everywhere = socket.create_server(("0.0.0.0", 0))
open("new", "w").write(str(everywhere.getsockname()[1]))
os.rename("new", "port")
time.sleep(1000)
"""


async def test_a_pod_that_serves_a_port_for_all_has_an_event(ns: PlaygroundNamespace) -> None:
    await ns.pod("all", command=["python3", "-c", SERVE_ALL])
    await ns.pod()
    await has_made(ns, "port", pod="all")
    port = int((ns.folder("all") / "port").read_text())
    await ns.marker(probe(probe={"tcpSocket": {"port": port}}))
    await ns.api.events.wait(
        "the pod has the event",
        lambda: events(ns, "PortShared", "all"),
    )


def events(ns: PlaygroundNamespace, reason: str, pod: str = "web") -> list[Json]:
    """The events of a pod of this namespace that have this reason."""
    return [
        event
        for event in ns.api.events.all()
        if event["metadata"]["namespace"] == ns.namespace
        and event["reason"] == reason
        and event["involvedObject"]["name"] == pod
    ]


NO_COMMAND = {"name": "main", "image": "nginx"}
NO_PROGRAM = {
    "name": "main",
    "image": "none",
    "command": ["/no/such/program"],
}
ENV_FROM = shell("main", REST, envFrom=[{"configMapRef": {"name": "x"}}])
CONFIG_ERROR = "waiting CreateContainerConfigError"


@cases(
    "container state message event",
    no_command=(
        NO_COMMAND,
        CONFIG_ERROR,
        "has no command, and the playground pulls no images",
        "Failed",
    ),
    env_from=(ENV_FROM, CONFIG_ERROR, "does not support envFrom", "Failed"),
    no_program=(NO_PROGRAM, "terminated StartError", "/no/such/program", "Failed"),
    crash_loop=(
        shell("main", "exit 3"),
        "waiting CrashLoopBackOff",
        "restarting failed container",
        "BackOff",
    ),
)
async def test_status_and_event_say_why_a_container_does_not_run(
    ns: PlaygroundNamespace, container: Json, state: str, message: str, event: str
) -> None:
    key, reason = state.split()

    def state_of(pod: Json) -> Json:
        (status,) = pod["status"]["containerStatuses"]
        found: Json = status["lastState" if key == "terminated" else "state"]
        return found.get(key) or {}

    await ns.pod(containers=[container])
    pod = await ns.until(
        f"is {state}",
        lambda pod: state_of(pod).get("reason") == reason,
    )
    assert message in state_of(pod)["message"]

    await ns.api.events.wait(
        f"an event {event}",
        lambda: events(ns, event),
    )
    recorded = events(ns, event)[0]
    assert message in recorded["message"]
    assert (recorded["type"], recorded["source"]["component"]) == ("Warning", "kubelet")
    assert recorded["involvedObject"]["fieldPath"] == "spec.containers{main}"
