"""Each clause of the policies for daemons and for the manager decides a request. RBAC allows all of them: the requests
impersonate a daemon or a manager that is also a cluster administrator.
"""

import asyncio
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from contract.contract_api import (
    DATA,
    JSON,
    MERGE,
    NODE_POD_PROBES,
    Api,
    ApiResponse,
    named,
    node_pod_probe,
    target_of,
)
from support import programs
from support.kubectl import Kubectl
from support.real_node import apart
from support.tables import load_table
from support.wire import Json

from kruise_probe.api.names import LEADER_ELECTION_ID, LEADER_LEASE_NODE, daemon_lease_name
from kruise_probe.manifests import objects_in
from kruise_probe.manifests.install import DAEMON

NODE = "zz-own"
OTHER = "zz-other"
CLAIM = "authentication.kubernetes.io/node-name"
PATHS = {
    "nodepodprobes": NODE_POD_PROBES,
    "leases": "/apis/coordination.k8s.io/v1/namespaces/{0}/leases",
    "events": "/api/v1/namespaces/{0}/events",
    "roles": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "bindings": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "new-events": "/apis/events.k8s.io/v1/namespaces/{0}/events",
}


class Row(NamedTuple):
    """A request, in which `{0}` is the test's namespace.

    `refused` is in the message of the policy, empty if it allows the request.
    """

    id: str
    method: str
    path: str
    body: Json | None
    refused: str
    extra: list[tuple[str, str]]
    user: str


def row_of(id: str, fields: Json) -> Row:
    """A row of test/data/own-node.yaml."""
    (method,) = fields.keys() & {"POST", "PATCH", "DELETE"}
    collection, _, rest = fields[method].partition("/")
    extra = [(CLAIM, node) for node in fields.get("nodes", [NODE])]
    if "extra" in fields:
        extra = list(fields["extra"].items())
    return Row(
        id,
        method,
        path=f"{PATHS.get(collection, collection)}/{rest}".rstrip("/"),
        body=fields.get("body"),
        refused=fields.get("refused", ""),
        extra=extra,
        user=fields.get("user", "system:serviceaccount:{0}:" + DAEMON),
    )


TABLE = load_table(DATA / "own-node.yaml", {})
ROWS = [row_of(id, fields) for id, fields in TABLE["requests"].items()]


def lease(name: str) -> Json:
    return {**named("Lease", name), "spec": {}}


def event(name: str, **more: Json) -> Json:
    involved = {"kind": "Pod", "name": "p", "namespace": "{0}"}
    return {
        **named("Event", name),
        "involvedObject": involved,
        "reason": "R",
        **more,
    }


OBJECTS = [
    lease(daemon_lease_name(NODE)),
    lease(daemon_lease_name(OTHER)),
    lease(daemon_lease_name(LEADER_LEASE_NODE)),
    lease(LEADER_ELECTION_ID),
    event("own", source={"component": "a", "host": NODE}),
    event("other", source={"component": "a", "host": OTHER}),
    event("without-source"),
    event("without-host", source={"component": "a"}),
]
"""In the test's namespace, before the requests."""


def in_namespace(body: Any, namespace: str) -> Any:
    return json.loads(json.dumps(body).replace("{0}", namespace))


@contextmanager
def installed(admin: Kubectl, namespace: str) -> Iterator[None]:
    """The policies for daemons and manager of the namespace, beside a real installation, and objects to change."""
    admin.install_crds()
    with admin.applied(
        named("Namespace", namespace),
        node_pod_probe(NODE),
        node_pod_probe(OTHER),
        *apart(objects_in("own_node_policy", namespace), namespace),
        *apart(objects_in("own_node_reads", namespace), namespace),
    ):
        Kubectl(admin.kubeconfig, namespace=namespace).apply(*in_namespace(OBJECTS, namespace))
        yield


async def send(api: Api, row: Row, namespace: str) -> ApiResponse:
    """Sends the request without effect, so that the order of the rows does not matter."""
    api.headers = [
        ("Impersonate-User", row.user.format(namespace)),
        ("Impersonate-Group", "system:masters"),
    ]
    for key, value in row.extra:
        escaped = key.replace("/", "%2F")
        api.headers.append((f"Impersonate-Extra-{escaped}", value))
    return await api.send(
        row.method,
        row.path.format(namespace),
        row.body and in_namespace(row.body, namespace),
        content_type=MERGE if row.method == "PATCH" else JSON,
        dryRun="All",
    )


@pytest.fixture(scope="session")
def answers(admin: Kubectl) -> dict[str, ApiResponse]:
    """The server's response to each row, by the row's id."""
    namespace = f"contract-{secrets.token_hex(4)}"
    refused = [row for row in ROWS if row.id in ("update-other-node", "role-of-another-name")]

    async def ask() -> dict[str, ApiResponse]:
        async with aiohttp.ClientSession() as session:
            api = Api(session, target_of(Path(admin.kubeconfig)))

            async def is_enforced() -> bool:
                return {(await send(api, row, namespace)).code for row in refused} == {403}

            await programs.until("the policy is enforced", is_enforced)
            return {row.id: await send(api, row, namespace) for row in ROWS}

    with installed(admin, namespace):
        return asyncio.run(ask())


@pytest.mark.parametrize("row", ROWS, ids=attrgetter("id"))
def test_each_clause_decides(answers: dict[str, ApiResponse], row: Row) -> None:
    answer = answers[row.id]

    if row.refused:
        assert answer.code == 403, answer
        assert row.refused in answer.text
    else:
        assert answer.code in (200, 201), answer
