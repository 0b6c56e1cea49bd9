"""A daemon's token does its work on its own node, and nothing anywhere else."""

import secrets
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from contract.account import TextResponse, TokenClient, bound_to, wait_until
from contract.contract_api import NODE_POD_PROBES, named, node_pod_probe
from support.kubectl import Kubectl
from support.real_node import apart, token_of
from support.wire import Json, typed

from kruise_probe.api.names import daemon_lease_name
from kruise_probe.manifests import objects_in
from kruise_probe.manifests.install import DAEMON


class Installation(NamedTuple):
    """Roles and policy in a namespace of their own, and two nodes that are objects only.

    Their names sort behind those of other nodes, so that a test that takes the first node gets a real one.
    """

    namespace: str
    own: str
    other: str


@pytest.fixture(scope="module")
def installation(admin: Kubectl) -> Iterator[Installation]:
    unique = secrets.token_hex(4)
    there = Installation(f"contract-{unique}", f"zz-own-{unique}", f"zz-other-{unique}")
    nodes = (there.own, there.other)
    admin.install_crds()
    with admin.applied(
        named("Namespace", there.namespace),
        *(named("Node", name) for name in nodes),
        *apart(objects_in("daemon_rbac", there.namespace), unique),
        *apart(objects_in("own_node_policy", there.namespace), unique),
        *(node_pod_probe(name) for name in nodes),
        *(lease(name, there.namespace) for name in nodes),
    ):
        yield there


def lease(node: str, namespace: str, **metadata: Any) -> Json:
    return {
        **named("Lease", daemon_lease_name(node), namespace=namespace, **metadata),
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 60},
    }


@pytest.fixture(scope="module", params=["node-bound", "pod-bound"])
def daemon(
    request: pytest.FixtureRequest,
    admin: Kubectl,
    installation: Installation,
    real_minor_version: int,
) -> TokenClient:
    """The daemon of the own node: once with a token for the node, once with that of a pod on it."""
    if request.param == "node-bound":
        if real_minor_version < 31:
            pytest.xfail("kubectl binds no token to a node (KEP-4193)")
        bound = bound_to("Node", installation.own)
    else:
        spec = {
            "nodeName": installation.own,
            "serviceAccountName": DAEMON,
            "containers": [{"name": "c", "image": "i"}],
        }
        pod = named("Pod", "daemon", namespace=installation.namespace)
        admin.apply({**pod, "spec": spec})
        bound = bound_to("Pod", "daemon")
    daemon = TokenClient(
        admin,
        token_of(admin, DAEMON, installation.namespace, *bound),
    )
    refused = status_of(installation.other)
    wait_until(
        "the policy is obeyed",
        lambda: send(daemon, refused).code == 403,
    )
    return daemon


class Request(NamedTuple):
    method: str
    path: str
    body: Json | None = None


def send(account: TokenClient, request: Request) -> TextResponse:
    return account.send(*request)


def leases(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def status_of(node: str, **metadata: Any) -> Request:
    entry = {"name": "p", "namespace": "d", "uid": "u"}
    body: Json = {"status": {"podProbeStatuses": [entry]}}
    if metadata:
        body["metadata"] = metadata
    return Request("PATCH", f"{NODE_POD_PROBES}/{node}/status", body)


def test_the_own_node_is_allowed(
    daemon: TokenClient, admin: Kubectl, installation: Installation
) -> None:
    mine = installation.own
    assert send(daemon, status_of(mine)).code == 200
    assert daemon.send("GET", f"{NODE_POD_PROBES}/{mine}").code == 200

    collection = leases(installation.namespace)
    name = daemon_lease_name(mine)
    path = f"{collection}/{name}"
    uid = admin.run("get", "node", mine, "-o", "jsonpath={.metadata.uid}")
    owners = [typed("Node", name=mine, uid=uid)]
    assert daemon.send("PATCH", path, {"spec": {"leaseDurationSeconds": 60}}).code == 200
    assert daemon.send("PATCH", path, {"metadata": {"ownerReferences": owners}}).code == 200
    admin.run("delete", "lease", name, "--namespace", installation.namespace)
    renewed = lease(mine, installation.namespace, ownerReferences=owners)
    assert daemon.send("POST", collection, renewed).code == 201

    events = "/api/v1/namespaces/default/events"
    event = {
        **named("Event", secrets.token_hex(16), namespace="default"),
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
        "reason": "KruiseProbeSucceeded",
        "type": "Normal",
        "source": {"component": "kruise-daemon-podprobe", "host": mine},
    }
    assert daemon.send("POST", events, event).code == 201
    path = f"{events}/{event['metadata']['name']}"
    assert daemon.send("PATCH", path, {"count": 2}).code == 200


BY_ROLE = "cannot"
BY_POLICY = "kruise-probe-daemon-own-node"
ATTEMPTS: dict[str, Callable[[Installation], Request]] = {
    "status-of-another-node": lambda i: status_of(i.other),
    "labels-of-the-own-node": lambda i: Request(
        "PATCH", f"{NODE_POD_PROBES}/{i.own}", {"metadata": {"labels": {"a": "b"}}}
    ),
    "lease-in-another-namespace": lambda i: Request(
        "POST", leases("default"), lease(i.own, "default")
    ),
    "read-secrets": lambda i: Request("GET", f"/api/v1/namespaces/{i.namespace}/secrets"),
    "status-of-a-pod": lambda i: Request(
        "PATCH", f"/api/v1/namespaces/{i.namespace}/pods/daemon/status", {"status": {}}
    ),
}
"""One for each boundary; the roles are compared whole by `hostile/test_e14_mounts_and_rights.py`."""


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_nothing_else_is_allowed(
    daemon: TokenClient, installation: Installation, attempt: str
) -> None:
    answer = send(daemon, ATTEMPTS[attempt](installation))

    assert answer.code == 403, answer
    assert (BY_POLICY if attempt == "status-of-another-node" else BY_ROLE) in answer.text


def test_metadata_sent_to_its_own_status_changes_nothing(
    daemon: TokenClient, admin: Kubectl, installation: Installation
) -> None:
    def metadata() -> Json:
        found: Json = admin.get("nodepodprobe", installation.own)["metadata"]
        kept = ("resourceVersion", "managedFields")
        return {key: value for key, value in found.items() if key not in kept}

    before = metadata()
    request = status_of(
        installation.own,
        labels={"a": "b"},
        annotations={"a": "b"},
        finalizers=["example.com/never"],
        ownerReferences=[typed("Node", name=installation.other, uid="u")],
    )

    answer = send(daemon, request)

    assert answer.code == 200, answer
    assert metadata() == before
