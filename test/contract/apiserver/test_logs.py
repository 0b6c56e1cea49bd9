"""`pods/log`: refusals of the API server, and logs of containers that run on a node."""

from collections.abc import Callable
from typing import Any

import pytest
from contract.contract_api import Api, absent_node, pod
from support.kubectl import KubectlError
from support.real_node import busybox_pod

Run = Callable[..., Any]


def two_containers(name: str = "p", **more: Any) -> Any:
    body = pod(name, **more)
    body["spec"]["containers"].append({"name": "d", "image": "i"})
    body["spec"]["initContainers"] = [{"name": "first", "image": "i"}]
    return body


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        pytest.param({}, 400, "a container name must be specified for pod p, choose one of: [first c d]", id="several-containers"),
        pytest.param({"container": "x"}, 400, "container x is not valid for pod p", id="unknown-container"),
        pytest.param({"container": "c"}, 404, 'pods "{node}" not found', id="unknown-node"),
    ],
)  # fmt: skip
async def test_a_log_that_cannot_be_read_is_refused(
    api: Api, query: dict[str, Any], code: int, message: str
) -> None:
    await api.create("pods", two_containers())
    answer = await api.get(f"{api.path('pods', 'p')}/log", **query)
    assert (answer.code, answer.body["message"]) == (code, message.format(node=absent_node()))


async def test_the_log_of_an_unscheduled_pod_is_empty(api: Api) -> None:
    await api.create("pods", pod("p", node=""))
    answer = await api.get(f"{api.path('pods', 'p')}/log")
    assert (answer.code, answer.text) == (204, "")


def running(name: str, *scripts: str, **spec: Any) -> Any:
    pod = busybox_pod(name, **spec)
    (container,) = pod["spec"]["containers"]
    more = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    pod["spec"]["containers"] = [
        {**container, **more, "name": f"c{number}", "command": ["sh", "-c", script]}
        for number, script in enumerate(scripts)
    ]
    return pod


async def test_kubectl_prints_and_follows_logs(node_kubectl: Run) -> None:
    lines = (
        "exec 2>&1; echo one; echo two >&2; echo three"  # two streams have no order in containerd
    )
    await node_kubectl(running("p", lines, f"sleep 1; {lines}; exit 1", restartPolicy="Never"))
    await node_kubectl("wait", "pod/p", "--for=jsonpath={.status.phase}=Failed", "--timeout=60s")

    assert await node_kubectl("logs", "p", "-c", "c0") == "one\ntwo\nthree\n"
    assert await node_kubectl("logs", "p", "-c", "c1", "-f") == "one\ntwo\nthree\n"
    assert await node_kubectl("logs", "p", "-c", "c0", "--tail=1") == "three\n"
    assert await node_kubectl("logs", "p", "-c", "c0", "--tail=0") == ""
    assert await node_kubectl("logs", "p", "-c", "c0", "--tail=2") == "two\nthree\n"
    with pytest.raises(
        KubectlError, match='previous terminated container "c0" in pod "p" not found'
    ):
        await node_kubectl("logs", "p", "-c", "c0", "--previous")
    message = "jsonpath={.status.containerStatuses[1].state.terminated.message}"
    assert (await node_kubectl("get", "pod", "p", "-o", message)).splitlines()[-1] == "three"


async def test_following_ends_with_the_container(node_kubectl: Run) -> None:
    await node_kubectl(
        running("p", "echo begin; sleep 3; echo end; sleep 1", restartPolicy="Never")
    )
    # Stays when the container has ended, unlike Ready.
    started = "jsonpath={.status.containerStatuses[0].containerID}"
    await node_kubectl("wait", "pod/p", f"--for={started}", "--timeout=60s")
    assert await node_kubectl("logs", "p", "--follow") == "begin\nend\n"


async def test_previous_is_the_attempt_before_the_last_start(node_kubectl: Run) -> None:
    script = "test -e /proc/self; echo $$-$(date +%s%N); sleep 1; exit 3"
    await node_kubectl(running("p", script))
    # Stays, unlike a number of restarts.
    restarted = "jsonpath={.status.containerStatuses[0].lastState.terminated.exitCode}=3"
    await node_kubectl("wait", "pod/p", f"--for={restarted}", "--timeout=60s")
    previous = await node_kubectl("logs", "p", "--previous")
    assert len(previous.splitlines()) == 1
    assert previous != ""
