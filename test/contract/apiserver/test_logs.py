"""`pods/log`: refusals of the API server, and logs of containers that run on a node."""

from typing import Any

import pytest
from contract.async_kubectl import AsyncKubectl
from contract.contract_api import Api, absent_node, pod
from support.cases import cases
from support.kubectl import KubectlError
from support.real_node import busybox_pod
from support.wire import Json


@cases(
    "query code message",
    several_containers=(
        {},
        400,
        "a container name must be specified for pod p, choose one of: [first c d]",
    ),
    unknown_container=({"container": "x"}, 400, "container x is not valid for pod p"),
    unknown_node=({"container": "c"}, 404, 'pods "{node}" not found'),
)
async def test_a_log_that_cannot_be_read_is_refused(
    api: Api, query: Json, code: int, message: str
) -> None:
    body = pod()
    body["spec"]["containers"].append({"name": "d", "image": "i"})
    body["spec"]["initContainers"] = [{"name": "first", "image": "i"}]
    await api.create("pods", body)
    answer = await api.get(api.path("pods", "p/log"), **query)
    assert answer.code == code
    assert answer.body["message"] == message.format(node=absent_node())


async def test_the_log_of_an_unscheduled_pod_is_empty(api: Api) -> None:
    await api.create("pods", pod(node=""))
    answer = await api.get(api.path("pods", "p/log"))
    assert (answer.code, answer.text) == (204, "")


def running(*scripts: str, **spec: Any) -> Json:
    """The pod `p` with a container for each script: c0, c1."""
    pod = busybox_pod("p", **spec)
    (container,) = pod["spec"]["containers"]
    container["terminationMessagePolicy"] = "FallbackToLogsOnError"
    pod["spec"]["containers"] = [
        {
            **container,
            "name": f"c{number}",
            "command": ["sh", "-c", script],
        }
        for number, script in enumerate(scripts)
    ]
    return pod


async def until(kubectl: AsyncKubectl, wanted: str) -> None:
    """Waits until the pod has a value at this path, or the value that is given."""
    await kubectl("wait", "pod/p", f"--for=jsonpath={wanted}", "--timeout=60s")


async def test_kubectl_prints_and_follows_logs(node_kubectl: AsyncKubectl) -> None:
    # Two streams have no order in containerd.
    lines = "exec 2>&1; echo one; echo two >&2; echo three"
    pod = running(lines, f"sleep 1; {lines}; exit 1", restartPolicy="Never")
    await node_kubectl.apply(pod)
    await until(node_kubectl, "{.status.phase}=Failed")

    async def logs(*options: str) -> str:
        return await node_kubectl("logs", "p", "-c", *options)

    assert await logs("c0") == "one\ntwo\nthree\n"
    assert await logs("c1", "-f") == "one\ntwo\nthree\n"
    assert await logs("c0", "--tail=1") == "three\n"
    assert await logs("c0", "--tail=0") == ""
    assert await logs("c0", "--tail=2") == "two\nthree\n"
    not_found = 'previous terminated container "c0" in pod "p" not found'
    with pytest.raises(KubectlError, match=not_found):
        await logs("c0", "--previous")
    message = "jsonpath={.status.containerStatuses[1].state.terminated.message}"
    printed = await node_kubectl("get", "pod", "p", "-o", message)
    assert printed.splitlines()[-1] == "three"


async def test_following_ends_with_the_container(node_kubectl: AsyncKubectl) -> None:
    script = "echo begin; sleep 3; echo end; sleep 1"
    await node_kubectl.apply(running(script, restartPolicy="Never"))
    # Stays when the container has ended, unlike Ready.
    await until(node_kubectl, "{.status.containerStatuses[0].containerID}")
    assert await node_kubectl("logs", "p", "--follow") == "begin\nend\n"


async def test_previous_is_the_attempt_before_the_last_start(node_kubectl: AsyncKubectl) -> None:
    await node_kubectl.apply(running("test -e /proc/self; echo $$-$(date +%s%N); sleep 1; exit 3"))
    # Stays, unlike a number of restarts.
    await until(node_kubectl, "{.status.containerStatuses[0].lastState.terminated.exitCode}=3")
    previous = await node_kubectl("logs", "p", "--previous")
    assert len(previous.splitlines()) == 1
    assert previous != ""
