"""Tables: the cells that kubectl prints."""

from typing import Any

import pytest
from support.contract_api import (
    TABLE,
    Api,
    ApiResponse,
    Json,
    absent_node,
    marker,
    node_pod_probe,
    pod,
)


def cells(answer: ApiResponse) -> list[dict[str, Any]]:
    assert answer.body["kind"] == "Table", answer
    names = [each["name"] for each in answer.body["columnDefinitions"]]
    return [dict(zip(names, row["cells"], strict=True)) for row in answer.body["rows"]]


def is_age(text: str) -> bool:
    return text.endswith("s") and text[:-1].isdigit()


RUNNING = {"running": {"startedAt": "2026-01-02T03:04:05Z"}}


def status(name: str, state: Json, **more: Any) -> Json:
    return {
        "name": name,
        "state": state,
        "ready": "running" in state,
        "restartCount": 0,
        "image": "i",
        "imageID": "i",
        **more,
    }


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        pytest.param({}, ("0/1", "Pending", "0"), id="pending"),
        pytest.param(
            {"phase": "Running", "containerStatuses": [status("c", RUNNING)]},
            ("1/1", "Running", "0"),
            id="running",
        ),
        pytest.param(
            {
                "phase": "Running",
                "containerStatuses": [
                    status("c", {"waiting": {"reason": "CrashLoopBackOff"}}, restartCount=3)
                ],
            },
            ("0/1", "CrashLoopBackOff", "3"),
            id="crash-loop",
        ),
        pytest.param(
            {
                "phase": "Failed",
                "containerStatuses": [
                    status("c", {"terminated": {"exitCode": 3, "reason": "Error"}})
                ],
            },
            ("0/1", "Error", "0"),
            id="failed",
        ),
        pytest.param(
            {
                "phase": "Succeeded",
                "containerStatuses": [
                    status("c", {"terminated": {"exitCode": 0, "reason": "Completed"}})
                ],
            },
            ("0/1", "Completed", "0"),
            id="completed",
        ),
        pytest.param(
            {"phase": "Failed", "reason": "Evicted"}, ("0/1", "Evicted", "0"), id="evicted"
        ),
        pytest.param(
            {
                "phase": "Pending",
                "initContainerStatuses": [status("s", {"waiting": {}}, ready=False)],
            },
            ("0/1", "Init:0/1", "0"),
            id="initializing",
        ),
    ],
)
async def test_a_pod_is_shown_by_its_state(
    api: Api, reported: Json, expected: tuple[str, str, str]
) -> None:
    body = pod("p")
    if "initContainerStatuses" in reported:
        body["spec"]["initContainers"] = [{"name": "s", "image": "i"}]
    await api.create("pods", body)
    if reported:
        path = api.path("pods", "p") + "/status"
        assert (await api.strategic(path, {"status": reported})).code == 200
    (row,) = cells(await api.get(api.path("pods"), accept=TABLE))
    assert (row["Ready"], row["Status"], row["Restarts"]) == expected
    assert row["Name"] == "p"
    assert is_age(row["Age"])
    assert (row["IP"], row["Node"], row["Nominated Node"]) == ("<none>", absent_node(), "<none>")


async def test_a_pod_that_is_being_deleted_is_terminating(api: Api) -> None:
    await api.create("pods", pod("p"))
    await api.delete(api.path("pods", "p"))
    (row,) = cells(await api.get(api.path("pods"), accept=TABLE))
    assert row["Status"] == "Terminating"


async def test_readiness_gates_and_address_of_a_pod_are_shown(api: Api) -> None:
    body = pod("p")
    body["spec"]["readinessGates"] = [{"conditionType": "a/x"}, {"conditionType": "b/x"}]
    await api.create("pods", body)
    reported = {
        "conditions": [{"type": "a/x", "status": "True"}],
        "podIP": "127.0.0.7",
        "podIPs": [{"ip": "127.0.0.7"}],
    }
    await api.strategic(api.path("pods", "p") + "/status", {"status": reported})
    (row,) = cells(await api.get(api.path("pods"), accept=TABLE))
    assert row["Readiness Gates"] == "1/2"
    assert row["IP"] == "127.0.0.7"


async def test_restarts_say_how_long_ago(api: Api) -> None:
    await api.create("pods", pod("p"))
    ended = {"terminated": {"exitCode": 1, "finishedAt": "2026-01-02T03:04:05Z"}}
    reported = {
        "phase": "Running",
        "containerStatuses": [status("c", RUNNING, restartCount=2, lastState=ended)],
    }
    await api.strategic(api.path("pods", "p") + "/status", {"status": reported})
    (row,) = cells(await api.get(api.path("pods"), accept=TABLE))
    assert row["Restarts"].startswith("2 (")
    assert row["Restarts"].endswith(" ago)")


async def test_columns_of_every_kind_are_those_of_kubectl(api: Api) -> None:
    expected = {
        "pods": "Name,Ready,Status,Restarts,Age,IP,Node,Nominated Node,Readiness Gates",
        "nodes": "Name,Status,Roles,Age,Version,Internal-IP,External-IP,OS-Image,Kernel-Version,"
        "Container-Runtime",
        "events": "Last Seen,Type,Reason,Object,Subobject,Source,Message,First Seen,Count,Name",
        "namespaces": "Name,Status,Age",
        "leases": "Name,Holder,Age",
        "serviceaccounts": "Name,Age",
        "nodepodprobes": "Name,Pods,Newest,Age",
    }
    for resource, names in expected.items():
        table = (await api.get(api.path(resource), accept=TABLE)).body
        assert [each["name"] for each in table["columnDefinitions"]] == names.split(","), resource
        wide = [each["priority"] for each in table["columnDefinitions"]]
        assert set(wide) <= {0, 1}


async def test_a_node_is_shown_with_its_roles_and_software(api: Api) -> None:
    name = f"n-{api.unique}"
    labels = {"contract": api.unique, "node-role.kubernetes.io/edge": ""}
    info = {
        "kubeletVersion": "v1.2.3",
        "osImage": "An OS",
        "kernelVersion": "6.1",
        "architecture": "x",
    }
    node = {
        "metadata": {"name": name, "labels": labels},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.9"}],
            "nodeInfo": info,
        },
    }
    await api.create("nodes", node)
    (row,) = cells(
        await api.get(api.path("nodes"), accept=TABLE, fieldSelector=f"metadata.name={name}")
    )
    assert is_age(row.pop("Age"))
    assert row.pop("Status").startswith("Ready")
    assert row == {
        "Name": name,
        "Roles": "edge",
        "Version": "v1.2.3",
        "Internal-IP": "127.0.0.9",
        "External-IP": "<none>",
        "OS-Image": "An OS",
        "Kernel-Version": "6.1 (x)",
        "Container-Runtime": "<unknown>",
    }


async def test_an_event_is_shown_with_its_object(api: Api) -> None:
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {
            "kind": "Pod",
            "name": "p",
            "namespace": api.namespace,
            "fieldPath": "spec.containers{c}",
        },
        "reason": "KruiseProbeFailed",
        "message": "it failed \n",
        "type": "Normal",
        "count": 4,
        "source": {"component": "kruise-daemon-podprobe", "host": "n"},
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:04:05Z",
    }
    await api.create("events", event)
    (row,) = cells(await api.get(api.path("events"), accept=TABLE))
    for seen in ("Last Seen", "First Seen"):
        assert row.pop(seen)
    assert row == {
        "Type": "Normal",
        "Reason": "KruiseProbeFailed",
        "Object": "pod/p",
        "Subobject": "spec.containers{c}",
        "Source": "kruise-daemon-podprobe, n",
        "Message": "it failed",
        "Count": 4,
        "Name": "e",
    }


async def test_a_marker_is_shown_by_the_columns_of_its_definition(api: Api) -> None:
    await api.create("podprobemarkers", marker())
    reported = {
        "observedGeneration": 1,
        "matchedPods": 3,
        "succeeded": 2,
        "failed": 0,
        "conditions": [
            {
                "type": kind,
                "status": value,
                "reason": "R",
                "message": "",
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            }
            for kind, value in (("Synced", "True"), ("Conflict", "False"), ("Degraded", "True"))
        ],
    }
    path = api.path("podprobemarkers", "m") + "/status"
    written = await api.merge(path, {"status": reported})
    assert written.code == 200, written
    (row,) = cells(await api.get(api.path("podprobemarkers"), accept=TABLE))
    assert is_age(row.pop("Age"))
    assert row["Name"] == "m"
    assert row["Matched"] == 3
    assert row["Succeeded"] == 2
    assert row["Failed"] == 0
    assert row["Unknown"] is None
    assert (row["Synced"], row["Conflict"], row["Degraded"]) == ("True", "False", "True")


async def test_one_object_is_a_table_of_one_row(api: Api) -> None:
    name = f"n-{api.unique}"
    body = node_pod_probe(name)
    body["metadata"]["labels"] = {"contract": api.unique}
    created = await api.create("nodepodprobes", body)
    table = await api.get(api.path("nodepodprobes", name), accept=TABLE)
    assert [each["Name"] for each in cells(table)] == [name]
    (row,) = table.body["rows"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"] == created.meta


@pytest.mark.parametrize(("include", "kind"), [("Object", "Pod"), ("None", None)])
async def test_what_comes_with_a_row_can_be_chosen(
    api: Api, include: str, kind: str | None
) -> None:
    await api.create("pods", pod("p"))
    table = await api.get(api.path("pods"), accept=TABLE, includeObject=include)
    (row,) = table.body["rows"]
    assert (row["object"] or {}).get("kind") == kind
