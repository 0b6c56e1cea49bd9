"""Pods on the embedded node do what they do on a kubelet's, as far as a process can."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from support.patience import PATIENCE_SECONDS
from support.playground import PlaygroundNamespace
from support.programs import until
from support.target import condition

from kruise_probe_playground.node.containers import ContainerChange, LocalContainer

Json = dict[str, Any]


def shell(name: str, script: str, **more: Any) -> Json:
    return {"name": name, "image": "none", "command": ["sh", "-c", script], **more}


def status_of(pod: Json, name: str = "main", *, init: bool = False) -> Json:
    listed = pod["status"].get("initContainerStatuses" if init else "containerStatuses") or ()
    return next((each for each in listed if each["name"] == name), {})


def phase_is(phase: str) -> Any:
    return lambda pod: pod["status"].get("phase") == phase


REST = "while :; do sleep 1; done"


async def has_made(ns: PlaygroundNamespace, name: str) -> None:
    """Returns once the container's program has come to where it makes a file of that name."""

    async def made() -> bool:
        return (ns.folder() / name).exists()

    await until(f"it has made {name}", made)


async def test_a_pod_is_scheduled_runs_and_says_so(ns: PlaygroundNamespace) -> None:
    pod = await ns.pod()
    pod = await ns.until("is ready", lambda it: condition(it, "Ready").get("status") == "True")

    status = status_of(pod)
    assert pod["spec"]["nodeName"] == "node-0"
    assert pod["status"]["podIP"].startswith("127.")
    assert (status["started"], status["ready"], status["restartCount"]) == (True, True, 0)
    assert status["containerID"].startswith("playground://")
    for kind in ("PodScheduled", "Initialized", "ContainersReady"):
        assert condition(pod, kind)["status"] == "True"


async def test_a_node_says_what_this_machine_has(ns: PlaygroundNamespace) -> None:
    status = (await ns.api.get("/api/v1/nodes/node-0"))["status"]

    assert status["capacity"]["cpu"] == str(os.cpu_count())
    assert status["allocatable"] == status["capacity"]


async def test_two_pods_have_two_addresses_and_can_bind_the_same_port(
    ns: PlaygroundNamespace,
) -> None:
    program = (
        'import os, socket, time; s = socket.create_server((os.environ["POD_IP"], 7001));'
        ' open("bound", "w").write(os.environ["POD_IP"]); time.sleep(1000)'
    )
    pods = [await ns.pod(name, command=["python3", "-c", program]) for name in ("a", "b")]
    for pod in pods:
        bound = await read_file(ns, "bound", pod["metadata"]["name"])
        assert bound == pod["status"]["podIP"]
    assert pods[0]["status"]["podIP"] != pods[1]["status"]["podIP"]


async def read_file(ns: PlaygroundNamespace, file: str, pod: str = "web") -> str:
    """What a file in the container's folder says, once it says anything."""
    node = ns.playground.nodes[0]
    script = f"until [ -s {file} ]; do sleep 0.02; done; cat {file}"
    container = node.container(ns.namespace, pod, "main")
    assert container is not None
    found = await node.runtime.exec_sync(
        container, ["sh", "-c", script], timeout_seconds=PATIENCE_SECONDS
    )
    return found.stdout.decode()


async def test_a_container_that_ends_is_started_again_with_a_new_id(
    ns: PlaygroundNamespace,
) -> None:
    pod = await ns.pod()
    first = status_of(pod)["containerID"]
    await ns.playground.nodes[0].kill_container(ns.namespace, "web", "main")
    pod = await ns.until("has restarted", lambda it: status_of(it)["restartCount"] == 1)

    assert status_of(pod)["containerID"] != first
    assert status_of(pod)["lastState"]["terminated"]["exitCode"] == 137
    assert status_of(pod)["lastState"]["terminated"]["containerID"] == first


async def test_init_containers_run_one_after_the_other_and_sidecars_stay(
    ns: PlaygroundNamespace,
) -> None:
    pod = await ns.pod(
        initContainers=[
            shell("first", "echo first >> ../order"),
            # It has started when its process has: how far that has come is the process's own affair.
            shell("side", f": > ../beside; {REST}", restartPolicy="Always"),
            shell("second", "until [ -e ../beside ]; do sleep 0.1; done; echo second >> ../order"),
        ],
        containers=[shell("main", f"echo main >> ../order; {REST}")],
    )
    pod = await ns.until("runs", phase_is("Running"))
    assert status_of(pod, "first", init=True)["state"]["terminated"]["reason"] == "Completed"
    assert status_of(pod, "side", init=True)["started"] is True
    order = ns.folder().parent / "order"
    assert order.read_text().split()[:2] == ["first", "second"]


async def test_a_failing_init_container_keeps_the_pod_from_starting(
    ns: PlaygroundNamespace,
) -> None:
    await ns.pod(initContainers=[shell("broken", "exit 1")], containers=[shell("main", REST)])
    pod = await ns.until(
        "tries again", lambda it: status_of(it, "broken", init=True).get("restartCount", 0) >= 2
    )
    assert pod["status"]["phase"] == "Pending"
    assert condition(pod, "Initialized")["status"] == "False"
    assert status_of(pod)["state"]["waiting"]["reason"] == "PodInitializing"


async def test_a_deleted_pod_is_asked_to_end_and_leaves_no_process_and_no_folder(
    ns: PlaygroundNamespace,
) -> None:
    trap = "trap 'echo asked > ../asked; exit 0' TERM"
    await ns.pod(command=["sh", "-c", f"{trap}; (setsid sleep 1000 &); touch ready; {REST}"])
    await has_made(ns, "ready")
    node = ns.playground.nodes[0]
    container = node.container(ns.namespace, "web", "main")
    assert container is not None
    removed, asked = asyncio.Event(), []

    def note(change: ContainerChange, changed: LocalContainer) -> None:
        if changed is container and change is ContainerChange.STOPPED:
            asked.append((container.folder.parent / "asked").exists())
        if changed is container and change is ContainerChange.DELETED:
            removed.set()

    stop_listening = node.runtime.add_listener(note)
    await ns.playground.api.delete(ns.pod_path())
    await ns.api.pods.until_gone("web", ns.namespace)
    await removed.wait()
    stop_listening()

    assert asked == [True]

    async def all_ended() -> bool:
        """A process that is killed takes a moment to die."""
        return processes_of(container.id) == []

    await until("what it had started has ended", all_ended)
    assert not container.folder.parent.exists()


def processes_of(container_id: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if container_id.encode() in (entry / "environ").read_bytes():
                    found.append(entry.name)
            except OSError:
                continue
    return found


async def test_a_pod_that_ignores_sigterm_is_killed_after_its_grace(
    ns: PlaygroundNamespace,
) -> None:
    command = ["sh", "-c", f"trap '' TERM; touch deaf; {REST}"]
    await ns.pod(command=command, terminationGracePeriodSeconds=1)

    await has_made(ns, "deaf")
    loop = asyncio.get_running_loop()
    began = loop.time()
    await ns.playground.api.delete(ns.pod_path())
    await ns.api.pods.until_gone("web", ns.namespace)
    assert loop.time() - began > 0.9


async def test_a_pod_deleted_by_force_can_come_back_under_its_name_at_once(
    ns: PlaygroundNamespace,
) -> None:
    first = await ns.pod(command=["sh", "-c", f"trap '' TERM; touch deaf; {REST}"])
    await has_made(ns, "deaf")
    await ns.playground.api.delete(ns.pod_path(), grace_seconds=0)
    await ns.api.pods.until_gone("web", ns.namespace)
    second = await ns.pod()
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    await ns.until("is ready", lambda it: condition(it, "Ready").get("status") == "True")


async def test_conditions_of_others_stay_when_the_node_writes_its_own(
    ns: PlaygroundNamespace,
) -> None:
    await ns.pod()
    mine = {"type": "example.com/mine", "status": "True", "reason": "Test"}
    pod = await ns.until("is ready", lambda it: condition(it, "Ready").get("status") == "True")
    conditions = [*pod["status"]["conditions"], mine]
    await ns.playground.api.merge(
        ns.pod_path(subresource="status"), {"status": {"conditions": conditions}}
    )
    await ns.playground.nodes[0].kill_container(ns.namespace, "web", "main")
    pod = await ns.until("has restarted", lambda it: status_of(it)["restartCount"] == 1)
    assert condition(pod, "example.com/mine")["reason"] == "Test"


def waiting(status: Json) -> Json:
    found: Json = status["state"].get("waiting") or {}
    return found


def ended(status: Json) -> Json:
    found: Json = status["lastState"].get("terminated") or {}
    return found


NO_COMMAND = {"name": "main", "image": "nginx"}
NO_PROGRAM = {"name": "main", "image": "none", "command": ["/no/such/program"]}
ENV_FROM = shell("main", REST, envFrom=[{"configMapRef": {"name": "x"}}])


@pytest.mark.parametrize(
    ("container", "state", "reason", "message", "event"),
    [
        pytest.param(NO_COMMAND, waiting, "CreateContainerConfigError", "has no command, and the playground pulls no images", "Failed", id="no-command"),
        pytest.param(ENV_FROM, waiting, "CreateContainerConfigError", "does not support envFrom", "Failed", id="env-from"),
        pytest.param(NO_PROGRAM, ended, "StartError", "/no/such/program", "Failed", id="no-program"),
        pytest.param(shell("main", "exit 3"), waiting, "CrashLoopBackOff", "restarting failed container", "BackOff", id="crash-loop"),
    ],
)  # fmt: skip
async def test_status_and_event_say_why_a_container_does_not_run(
    ns: PlaygroundNamespace, container: Json, state: Any, reason: str, message: str, event: str
) -> None:
    await ns.pod(containers=[container])
    pod = await ns.until(
        f"has the reason {reason}", lambda it: state(status_of(it)).get("reason") == reason
    )
    assert message in state(status_of(pod))["message"]

    def events() -> list[Json]:
        return [
            each
            for each in ns.api.events.all()
            if (each["metadata"]["namespace"], each["reason"]) == (ns.namespace, event)
        ]

    await ns.api.events.wait(f"an event {event}", events)
    recorded = events()[0]
    assert message in recorded["message"]
    assert (recorded["type"], recorded["source"]["component"]) == ("Warning", "kubelet")
    assert recorded["involvedObject"]["fieldPath"] == "spec.containers{main}"
