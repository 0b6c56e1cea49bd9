"""A daemon's token does its work on its own node, and nothing anywhere else."""

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from contract.account import TextResponse, TokenClient
from contract.contract_api import node_pod_probe
from support.kubectl import Kubectl
from support.patience import PATIENCE_SECONDS
from support.real_node import apart
from support.wire import Json, typed

from kruise_probe.manifests import objects_in
from kruise_probe.manifests.install import DAEMON

GROUP = "apps.kruise.io/v1alpha1"
NODE_POD_PROBES = f"/apis/{GROUP}/nodepodprobes"


class Installation(NamedTuple):
    """Roles and policy in a namespace of their own, and two nodes that are objects only.

    Their names sort behind those of other nodes, so that whoever takes the first node gets a real one.
    """

    namespace: str
    own: str
    other: str


@pytest.fixture(scope="module")
def installation(admin: Kubectl) -> Iterator[Installation]:
    unique = uuid.uuid4().hex[:8]
    there = Installation(f"contract-{unique}", f"zz-own-{unique}", f"zz-other-{unique}")
    nodes = (there.own, there.other)
    roles = [
        *objects_in("daemon_rbac", there.namespace),
        *objects_in("own_node_policy", there.namespace),
    ]
    admin.install_crds()
    with admin.applied(
        typed("Namespace", metadata={"name": there.namespace}),
        *(typed("Node", metadata={"name": name}) for name in nodes),
        *apart(roles, unique),
        *(node_pod_probe(name) for name in nodes),
        *(lease(name, there.namespace) for name in nodes),
    ):
        yield there


def lease(node: str, namespace: str, **metadata: Any) -> Json:
    return typed(
        "Lease",
        metadata={"name": f"kruise-probe-{node}", "namespace": namespace, **metadata},
        spec={"holderIdentity": node, "leaseDurationSeconds": 60},
    )


def event(host: str, name: str) -> Json:
    return typed(
        "Event",
        metadata={"name": name, "namespace": "default"},
        involvedObject={"kind": "Pod", "namespace": "default", "name": "p"},
        reason="KruiseProbeSucceeded",
        type="Normal",
        source={"component": "kruise-daemon-podprobe", "host": host},
    )


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
        bound = ["--bound-object-kind=Node", f"--bound-object-name={installation.own}"]
    else:
        admin.apply(pod_of(installation))
        bound = ["--bound-object-kind=Pod", "--bound-object-name=daemon"]
    daemon = TokenClient(admin, token_of(admin, installation, *bound))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while send(daemon, status_of(installation.other)).code != 403:
        assert time.monotonic() < deadline, "the policy is not obeyed"
    return daemon


def token_of(admin: Kubectl, installation: Installation, *bound: str) -> str:
    return admin.run("create", "token", DAEMON, "--namespace", installation.namespace, *bound)


def pod_of(installation: Installation) -> Json:
    return typed(
        "Pod",
        metadata={"name": "daemon", "namespace": installation.namespace},
        spec={
            "nodeName": installation.own,
            "serviceAccountName": DAEMON,
            "containers": [{"name": "c", "image": "i"}],
        },
    )


class Request(NamedTuple):
    method: str
    path: str
    body: Json | None = None


def send(account: TokenClient, request: Request) -> TextResponse:
    return account.send(*request)


def leases(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def lease_of(installation: Installation, node: str) -> str:
    return f"{leases(installation.namespace)}/kruise-probe-{node}"


def status_of(node: str, **metadata: Any) -> Request:
    body: Json = {"status": {"podProbeStatuses": [{"name": "p", "namespace": "d", "uid": "u"}]}}
    if metadata:
        body["metadata"] = metadata
    return Request("PATCH", f"{NODE_POD_PROBES}/{node}/status", body)


def renewal_of(installation: Installation, node: str) -> Request:
    return Request("PATCH", lease_of(installation, node), {"spec": {"leaseDurationSeconds": 60}})


def event_named(name: str = "") -> str:
    return f"/api/v1/namespaces/default/events{name and '/'}{name}"


def test_the_own_node_is_allowed(
    daemon: TokenClient, admin: Kubectl, installation: Installation
) -> None:
    mine, name = installation.own, uuid.uuid4().hex
    assert send(daemon, status_of(mine)).code == 200
    assert send(daemon, renewal_of(installation, mine)).code == 200
    uid = admin.run("get", "node", mine, "-o", "jsonpath={.metadata.uid}")
    node = {"apiVersion": "v1", "kind": "Node", "name": mine, "uid": uid}
    owned = {"metadata": {"ownerReferences": [node]}}
    assert daemon.send("PATCH", lease_of(installation, mine), owned).code == 200
    assert daemon.send("POST", event_named(), event(mine, name)).code == 201
    assert daemon.send("PATCH", event_named(name), {"count": 2}).code == 200
    assert daemon.send("GET", f"{NODE_POD_PROBES}/{mine}").code == 200
    admin.run("delete", "lease", f"kruise-probe-{mine}", "--namespace", installation.namespace)
    renewed = lease(mine, installation.namespace, **owned["metadata"])
    assert daemon.send("POST", leases(installation.namespace), renewed).code == 201


BY_ROLE, BY_POLICY = "cannot", "kruise-probe-daemon-own-node"
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
    owner = {"apiVersion": "v1", "kind": "Node", "name": installation.other, "uid": "u"}

    answer = send(
        daemon,
        status_of(
            installation.own,
            labels={"a": "b"},
            annotations={"a": "b"},
            finalizers=["example.com/never"],
            ownerReferences=[owner],
        ),
    )

    assert answer.code == 200, answer
    assert metadata() == before
