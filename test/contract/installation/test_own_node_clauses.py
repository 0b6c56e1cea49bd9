"""Each clause of the policy for daemons decides a request. RBAC allows all of them: the requests impersonate a daemon
that is also a cluster administrator.
"""

import asyncio
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from contract.contract_api import MERGE, Api, ApiResponse, node_pod_probe, target_of
from support import programs
from support.kubectl import Kubectl
from support.real_node import apart
from support.wire import Json

from kruise_probe.api.names import LEADER_ELECTION_ID, LEADER_LEASE_NODE, daemon_lease_name
from kruise_probe.manifests import objects_in
from kruise_probe.manifests.install import DAEMON

NODE, OTHER = "zz-own", "zz-other"
CLAIM = "authentication.kubernetes.io/node-name"
NPP, LEASES, EVENTS, NEW_EVENTS = (
    "/apis/apps.kruise.io/v1alpha1/nodepodprobes",
    "/apis/coordination.k8s.io/v1/namespaces/{0}/leases",
    "/api/v1/namespaces/{0}/events",
    "/apis/events.k8s.io/v1/namespaces/{0}/events",
)
UNBOUND = "is not bound to a node"
NOT_ITS_NODE = "is not that of node"
NOT_ITS_LEASE = "is not that of the daemon of node"
NOT_ITS_HOST = "source.host of the event must be the name of node"
NOT_ITS_EVENT = "was not written by the daemon of node"


class Row(NamedTuple):
    """A request, in which `{0}` is the test's namespace.

    `refused` is in the message of the policy, empty if it allows the request.
    """

    id: str
    method: str
    path: str
    body: Json | None = None
    refused: str = ""
    extra: tuple[tuple[str, str], ...] = ((CLAIM, NODE),)
    user: str = "system:serviceaccount:{0}:" + DAEMON


def lease(name: str) -> Json:
    return {"metadata": {"name": name}, "spec": {}}


def event(name: str, source: Json | None) -> Json:
    given = {} if source is None else {"source": source}
    involved = {"kind": "Pod", "name": "p", "namespace": "{0}"}
    return {"metadata": {"name": name}, "involvedObject": involved, "reason": "R", **given}


NEW_EVENT = {
    "metadata": {"name": "new"},
    "eventTime": "2026-11-01T00:00:00.000000Z",
    "reportingController": "example.com/a",
    "reportingInstance": "a",
    "action": "a",
    "reason": "R",
    "type": "Normal",
    "regarding": {"kind": "Pod", "name": "p", "namespace": "{0}"},
}
OWN, HOSTLESS = {"component": "a", "host": NODE}, {"component": "a"}
SOURCES: dict[str, Json | None] = {
    "own": OWN,
    "other": {"component": "a", "host": OTHER},
    "without-source": None,
    "without-host": HOSTLESS,
}
COUNT = {"count": 2}
LABELS = {"metadata": {"labels": {"a": "b"}}}
SPECIAL = daemon_lease_name(LEADER_LEASE_NODE)
AS_SPECIAL = ((CLAIM, LEADER_LEASE_NODE),)

ROWS = (
    Row("create-own-node", "POST", NPP, node_pod_probe(f"{NODE}-new"), "", ((CLAIM, f"{NODE}-new"),)),
    Row("create-other-node", "POST", NPP, node_pod_probe("zz-third"), NOT_ITS_NODE),
    Row("update-own-node", "PATCH", f"{NPP}/{NODE}", LABELS),
    Row("update-other-node", "PATCH", f"{NPP}/{OTHER}", LABELS, NOT_ITS_NODE),
    Row("delete-own-node", "DELETE", f"{NPP}/{NODE}"),
    Row("delete-other-node", "DELETE", f"{NPP}/{OTHER}", None, NOT_ITS_NODE),
    Row("status-of-own-node", "PATCH", f"{NPP}/{NODE}/status", {"status": {}}),
    Row("status-of-other-node", "PATCH", f"{NPP}/{OTHER}/status", {"status": {}}, NOT_ITS_NODE),
    Row("create-own-lease", "POST", LEASES, lease(daemon_lease_name("zz-new")), "", ((CLAIM, "zz-new"),)),
    Row("create-other-lease", "POST", LEASES, lease(daemon_lease_name("zz-third")), NOT_ITS_LEASE),
    Row("update-own-lease", "PATCH", f"{LEASES}/{daemon_lease_name(NODE)}", LABELS),
    Row("update-other-lease", "PATCH", f"{LEASES}/{daemon_lease_name(OTHER)}", LABELS, NOT_ITS_LEASE),
    Row("delete-own-lease", "DELETE", f"{LEASES}/{daemon_lease_name(NODE)}"),
    Row("delete-other-lease", "DELETE", f"{LEASES}/{daemon_lease_name(OTHER)}", None, NOT_ITS_LEASE),
    Row("lease-of-the-node-named-as-the-leader", "PATCH", f"{LEASES}/{SPECIAL}", LABELS, "", AS_SPECIAL),
    Row("lease-of-the-leader", "PATCH", f"{LEASES}/{LEADER_ELECTION_ID}", LABELS, NOT_ITS_LEASE, AS_SPECIAL),
    *(
        Row(f"create-event-{name}", "POST", EVENTS, event("new", source), "" if name == "own" else NOT_ITS_HOST)
        for name, source in SOURCES.items()
    ),
    *(
        Row(f"{verb}-event-{name}", method, f"{EVENTS}/{name}", body, "" if name == "own" else NOT_ITS_EVENT)
        for name in SOURCES
        for verb, method, body in (("take-over", "PATCH", COUNT | {"source": OWN}), ("delete", "DELETE", None))
    ),
    Row("give-own-event-away", "PATCH", f"{EVENTS}/own", {"source": {"host": OTHER}}, NOT_ITS_HOST),
    Row("create-event-by-the-other-api", "POST", NEW_EVENTS, NEW_EVENT, NOT_ITS_HOST),
    *(
        Row(f"token-{name}", "PATCH", f"{NPP}/{NODE}", LABELS, UNBOUND, extra)
        for name, extra in {
            "without-extra": (),
            "without-claim": (("authentication.kubernetes.io/pod-name", NODE),),
            "with-two-nodes": ((CLAIM, NODE), (CLAIM, OTHER)),
            "with-an-empty-node": ((CLAIM, ""),),
        }.items()
    ),
    Row("another-account", "PATCH", f"{NPP}/{OTHER}", LABELS, user="system:serviceaccount:{0}:other"),
    Row("same-account-of-another-namespace", "PATCH", f"{NPP}/{OTHER}", LABELS,
        user=f"system:serviceaccount:default:{DAEMON}"),
    Row("another-resource", "PATCH", "/api/v1/namespaces/{0}", LABELS),
)  # fmt: skip


def in_namespace(body: Any, namespace: str) -> Any:
    return json.loads(json.dumps(body).replace("{0}", namespace))


@contextmanager
def installed(admin: Kubectl, namespace: str) -> Iterator[None]:
    """The policy for daemons of the namespace, beside a real installation, and objects to change."""
    cluster_wide = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        *(node_pod_probe(name) for name in (NODE, OTHER)),
        *apart(objects_in("own_node_policy", namespace), namespace),
    ]
    leases = (daemon_lease_name(NODE), daemon_lease_name(OTHER), SPECIAL, LEADER_ELECTION_ID)
    objects = [
        *({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease(name)} for name in leases),
        *({"apiVersion": "v1", "kind": "Event", **event(*each)} for each in SOURCES.items()),
    ]  # fmt: skip
    admin.install_crds()
    with admin.applied(*cluster_wide):
        Kubectl(admin.kubeconfig, namespace=namespace).apply(*in_namespace(objects, namespace))
        yield


async def send(api: Api, row: Row, namespace: str) -> ApiResponse:
    """Sends the request without effect, so that the order of the rows does not matter."""
    api.headers = [
        ("Impersonate-User", row.user.format(namespace)),
        ("Impersonate-Group", "system:masters"),
        *((f"Impersonate-Extra-{key.replace('/', '%2F')}", value) for key, value in row.extra),
    ]
    return await api.send(
        row.method,
        row.path.format(namespace),
        row.body and in_namespace(row.body, namespace),
        content_type=MERGE if row.method == "PATCH" else "application/json",
        dryRun="All",
    )


@pytest.fixture(scope="session")
def answers(admin: Kubectl) -> dict[str, ApiResponse]:
    """What the server answers to each row, by the row's id."""
    namespace = f"contract-{uuid.uuid4().hex[:8]}"
    refused = next(row for row in ROWS if row.id == "update-other-node")

    async def ask() -> dict[str, ApiResponse]:
        async with aiohttp.ClientSession() as session:
            api = Api(session, target_of(Path(admin.kubeconfig)))

            async def is_enforced() -> bool:
                return (await send(api, refused, namespace)).code == 403

            await programs.until("the policy is enforced", is_enforced)
            return {row.id: await send(api, row, namespace) for row in ROWS}

    with installed(admin, namespace):
        return asyncio.run(ask())


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in ROWS])
def test_each_clause_decides(answers: dict[str, ApiResponse], row: Row) -> None:
    answer = answers[row.id]

    if row.refused:
        assert answer.code == 403, answer
        assert row.refused in answer.text
    else:
        assert answer.code in (200, 201), answer
