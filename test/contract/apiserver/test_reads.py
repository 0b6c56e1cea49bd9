"""What both servers respond to reads: lists, selectors, tables, discovery."""

from typing import Any, Final

import pytest
from contract import contract_api
from contract.contract_api import TABLE, Api, marker
from contract.contract_rows import ABSENT, Part, Step, made, run, step
from support.wire import Json


def pod(name: str, number: int = 0, **labels: str) -> Json:
    return contract_api.pod(
        name, node=f"{{node}}-{number % 2}", labels={"number": str(number), **labels}
    )


FIVE: Final = [
    *(made("pods", pod(f"p{at}", at, **({"app": app} if app else {}))) for at, app in enumerate(("a", "a", "b", "b", ""))),
    *(step(f"STRATEGIC pods/p{at}/status", {"status": {"phase": phase}}) for at, phase in ((0, "Running"), (1, "Failed"), (2, "Running"))),
]  # fmt: skip
NPP: Final = {
    **contract_api.node_pod_probe("{ns}-n"),
    "metadata": {"name": "{ns}-n", "labels": {"contract": "{id}"}},
}


def listed(expected: str, **query: Any) -> Step:
    """A list of some of the five pods."""
    return step("GET pods", None, 200, {"names": [f"p{each}" for each in expected]}, **query)


def bad(**query: Any) -> Step:
    return step("GET pods", None, 400, {"reason": "BadRequest"}, **query)


def status(state: Json, name: str = "c", **more: Any) -> Json:
    return {
        "name": name, "state": state, "ready": "running" in state, "restartCount": 0, "image": "i", "imageID": "i", **more,
    }  # fmt: skip


RUNNING: Final = {"running": {"startedAt": "2026-01-02T03:04:05Z"}}
ENDED: Final = {
    "terminated": {"exitCode": 1, "reason": "Error", "finishedAt": "2026-01-02T03:04:05Z"}
}
SHOWN: Final[tuple[tuple[Json, str, str], ...]] = (
    ({}, "0/1", "Pending"),
    ({"phase": "Running", "containerStatuses": [status(RUNNING)]}, "1/1", "Running"),
    ({"containerStatuses": [status({"waiting": {"reason": "CrashLoopBackOff"}})]}, "0/1", "CrashLoopBackOff"),
    ({"containerStatuses": [status({"terminated": {"exitCode": 4}})]}, "0/1", "ExitCode:4"),
    ({"phase": "Failed", "containerStatuses": [status(ENDED)]}, "0/1", "Error"),
    ({"phase": "Succeeded", "containerStatuses": [status({"terminated": {"exitCode": 0, "reason": "Completed"}})]}, "0/1", "Completed"),
    ({"phase": "Failed", "containerStatuses": None, "reason": "Evicted"}, "0/1", "Evicted"),
)  # fmt: skip
COLUMNS: Final = {
    "pods": "Name,Ready,Status,Restarts,Age,IP,Node,Nominated Node,Readiness Gates",
    "nodes": "Name,Status,Roles,Age,Version",
    "events": "Last Seen,Type,Reason,Object,Message",
    "namespaces": "Name,Status,Age",
    "leases": "Name,Holder,Age",
    "/apis/apps/v1/replicasets": "Name,Desired,Current,Ready,Age",
    "nodepodprobes": "Name,Pods,Newest,Age",
}  # fmt: skip
"""Those of `kubectl get`; a real server has more for `-o wide`."""


def shown(name: str, reported: Json, ready: str, phase: str) -> list[Step]:
    return [
        step(f"STRATEGIC pods/{name}/status", {"status": reported}),
        step(
            f"GET pods/{name}",
            None,
            200,
            {"rows.0.cells.1": ready, "rows.0.cells.2": phase},
            accept=TABLE,
        ),
    ]


ROWS: Final[dict[str, list[Step]]] = {
    "items-of-lists": [
        step("GET pods", None, 200, {"items": [], "kind": "PodList", "apiVersion": "v1"}),
        *(made("pods", pod(name)) for name in ("b", "a.b", "a-b", "a")),
        step("GET pods", None, 200, {"names": ["a", "a-b", "a.b", "b"], "items.0.kind": ABSENT}),
        made("podprobemarkers", marker()),
        step("GET podprobemarkers", None, 200, {"kind": "PodProbeMarkerList", "items.0.kind": "PodProbeMarker"}),
        step("GET /api/v1/pods", None, 200, {"names": ["a"]}, fieldSelector="metadata.namespace={ns},metadata.name=a"),
    ],
    "label-selectors": [*FIVE, *(listed(expected, labelSelector=selector) for selector, expected in {
        "app=a": "01", "app==a": "01", "app!=a": "234", "app in (a, b)": "0123", "app notin (a)": "234", "app": "0123",
        "!app": "4", "app=a,number=1": "1", "app=": "", " ": "01234", "app in ()": "", "app notin (x),number!=0": "1234", "app = b": "23",
    }.items())],
    "field-selectors": [*FIVE, *(listed(expected, fieldSelector=selector) for selector, expected in {
        "metadata.name=p1": "1", "spec.nodeName={node}-1": "13", "spec.nodeName!={node}-1": "024", "status.phase=Running": "02",
        "status.phase!=Running,status.phase!=Failed": "34", "spec.nodeName={node}-0,status.phase=Running": "02", "metadata.name=none": "",
    }.items())],
    "queries-that-cannot-be-read": [
        *(bad(labelSelector=each) for each in (
            "a===b", "a in b", "-a=1", "a=-b-", "a=1,", "a in (x", ",a", "a,,b", "=1", "a b", "/c", "a.b/=1", "a=b=c", "!", "a=1;b", "a=(b)")),
        *(bad(fieldSelector=each) for each in (
            "spec.nonsense=1", "nonsense", "metadata.name", "metadata.name=a=b", "metadata.name=\\c", " metadata.name=c", "=c")),
        bad(resourceVersion="x"),
        step("GET pods", None, 406, accept="image/png"),
    ],
    "pods-are-shown-by-their-state": [
        made("pods", contract_api.pod("p", node="{node}")),
        *(each for row in SHOWN for each in shown("p", *row)),
        step("STRATEGIC pods/p/status", {"status": {
            "phase": "Running", "reason": None, "containerStatuses": [status(RUNNING, restartCount=2, lastState=ENDED)]}}),
        step("GET pods/p", None, 200, {"rows.0.cells.3": Part("2"), "rows.0.cells.5": "<none>", "rows.0.cells.6": "{node}",
                                       "rows.0.object.metadata.name": "p"}, accept=TABLE),
        step("DELETE pods/p"), step("GET pods/p", None, 200, {"rows.0.cells.2": "Terminating"}, accept=TABLE),
        made("pods", {**contract_api.pod("q", node="{node}"), "spec": {
            **contract_api.pod(node="{node}")["spec"], "readinessGates": [{"conditionType": "a/x"}, {"conditionType": "b/x"}],
        }}),
        step("STRATEGIC pods/q/status", {"status": {
            "conditions": [{"type": "a/x", "status": "True"}], "podIP": "127.0.0.7", "podIPs": [{"ip": "127.0.0.7"}]}}),
        step("GET pods/q", None, 200, {"rows.0.cells.5": "127.0.0.7", "rows.0.cells.8": "1/2"}, accept=TABLE),
        step("GET pods/q", None, 200, {"rows.0.object.kind": "Pod"}, accept=TABLE, includeObject="Object"),
    ],
    "an-event-is-shown-with-its-object": [
        made("events", {
            "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "{ns}"}, "reason": "R",
            "message": "it failed \n", "type": "Normal", "count": 4, "lastTimestamp": "2026-01-02T03:04:05Z",
        }),
        step("GET events", None, 200, {f"rows.0.cells.{at}": each for at, each in ((1, "Normal"), (2, "R"), (3, "pod/p"))}, accept=TABLE),
    ],
    "a-marker-is-shown-by-the-columns-of-its-definition": [
        made("podprobemarkers", marker()),
        step("MERGE podprobemarkers/m/status", {"status": {
            "observedGeneration": 1, "matchedPods": 3, "succeeded": 2, "failed": 0, "conditions": [
                {"type": kind, "status": value, "reason": "R", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}
                for kind, value in (("Synced", "True"), ("Conflict", "False"), ("Degraded", "True"))]}}),
        step("GET podprobemarkers", None, 200, {"rows.0.cells.0": "m", "rows.0.cells.1": 3, "rows.0.cells.2": 2, "rows.0.cells.3": 0,
                                                "rows.0.cells.4": None}, accept=TABLE),
    ],
    "columns-are-those-of-kubectl": [
        made("nodepodprobes", NPP),
        *(step(f"GET {path}", None, 200, {f"columnDefinitions.{at}.name": each for at, each in enumerate(names.split(","))}, accept=TABLE)
          for path, names in COLUMNS.items() if path != "events"),
        step("GET events", None, 200, {"columnDefinitions.0.name": "Last Seen", "columnDefinitions.3.name": "Object"}, accept=TABLE),
    ],
    "discovery": [
        *(step(f"GET /{each}", None, 200, {"text": "ok"}) for each in ("healthz", "readyz", "livez")),
        step("GET /version", None, 200, {"major": "1", "gitVersion": Part("v1.")}),
        step("GET /apis/apps.kruise.io/v1alpha1", None, 200, {"text": Part('"podprobemarkers/status"')}),
        step("GET /apis/apps/v1", None, 200, {"text": Part('"replicasets/scale"')}),
        step("GET /nothing", None, 404), step("GET /apis/none.example.com", None, 404),
        step("GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions/podprobemarkers.apps.kruise.io", None, 200,
             {"status.acceptedNames.kind": "PodProbeMarker", "text": Part('"Established"')}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
async def test_both_servers_respond_as_the_row_says(api: Api, row: str) -> None:
    await run(api, ROWS[row])
