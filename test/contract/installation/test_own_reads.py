"""With --own-node-reads a daemon's token reads its own NodePodProbe alone.

`test_own_node_clauses.py` has what the manager may grant.
"""

import json
import secrets
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from contract.account import TextResponse, TokenClient, bound_to, wait_until
from contract.contract_api import NODE_POD_PROBES, named, node_pod_probe
from support.cases import cases
from support.kubectl import Kubectl
from support.real_node import apart, token_of
from support.wire import Json

from kruise_probe.api.core import Node
from kruise_probe.api.names import node_user
from kruise_probe.controllers.own_reads import CLUSTER_ROLES, rights_of
from kruise_probe.daemon.own_reads import explained
from kruise_probe.manifests.install import DAEMON, MANAGER, Install, default_install

NEWEST_WITHOUT = 35
"""The last minor version of Kubernetes without constrained impersonation by default."""


class Installation(NamedTuple):
    """What is installed, in a namespace of its own, and three nodes that are objects only.

    Attributes:
        own, other: nodes that have what the manager creates.
        bare: a node that has nothing.
        daemon: the stolen token: that of the daemon's pod on `own`.
        old: the API server has no constrained impersonation.
    """

    namespace: str
    own: str
    other: str
    bare: str
    daemon: TokenClient
    old: bool


@pytest.fixture(scope="module")
def installation(admin: Kubectl, real_minor_version: int) -> Iterator[Installation]:
    unique = secrets.token_hex(4)
    namespace = f"contract-{unique}"
    own = f"zz-own-{unique}"
    other = f"zz-other-{unique}"
    bare = f"zz-bare-{unique}"
    nodes = (own, other, bare)
    documents = default_install(Install(namespace=namespace, own_node_reads=True))
    left = ("CustomResourceDefinition", "Deployment", "DaemonSet", "PodDisruptionBudget")
    roles = [document for document in documents if document["kind"] not in left]
    admin.install_crds()
    with admin.applied(
        *apart(roles, unique),
        *(named("Node", name) for name in nodes),
        *(node_pod_probe(name) for name in nodes),
    ):
        tenant = Kubectl(admin.kubeconfig, namespace=namespace)
        secret = {**named("Secret", "of-the-pod"), "stringData": {"a": "b"}}
        tenant.apply(secret, *(pod_on(name) for name in nodes))
        daemon = TokenClient(
            admin,
            token_of(admin, DAEMON, namespace, *bound_to("Pod", own)),
        )
        manager = TokenClient(admin, token_of(admin, MANAGER, namespace))
        old = real_minor_version <= NEWEST_WITHOUT
        made = Installation(namespace, own, other, bare, daemon, old)
        for name in (own, other):
            uid = admin.run("get", "node", name, "-o", "jsonpath={.metadata.uid}")
            for kind, body in rights_of(Node(name, uid)):
                answer = manager.send("POST", kind.path(), json.loads(body))
                assert answer.code == 201, answer.text
        if not old:
            path = f"{NODE_POD_PROBES}/{own}"
            wait_until(
                "the roles are obeyed",
                lambda: read(made, path).code == 200,
            )
        yield made


def pod_on(node: str) -> Json:
    """A daemon's pod. The node's kubelet may read its Secret."""
    spec = {
        "nodeName": node,
        "serviceAccountName": DAEMON,
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "s", "secret": {"secretName": "of-the-pod"}}],
    }
    return {**named("Pod", node), "spec": spec}


def read(installation: Installation, path: str, node: str = "") -> TextResponse:
    """A read with the stolen token as a node, by default its own."""
    user = node_user(node or installation.own)
    return installation.daemon.send(
        "GET",
        path.format(i=installation),
        as_user=user,
    )


def of(node: str, *, watch: bool = False) -> str:
    """A list or watch of one NodePodProbe, as informers send it."""
    selector = f"?fieldSelector=metadata.name%3D{node}"
    return f"{NODE_POD_PROBES}{selector}" + "&watch=1&timeoutSeconds=1" * watch


@cases(
    "path",
    get=NODE_POD_PROBES + "/{i.own}",
    list=of("{i.own}"),
    watch=of("{i.own}", watch=True),
)
def test_the_token_reads_its_own_nodepodprobe_as_its_node(
    installation: Installation, path: str
) -> None:
    if installation.old:
        pytest.xfail("the server has no constrained impersonation (KEP-5284)")
    assert read(installation, path).code == 200
    without = installation.daemon.send("GET", path.format(i=installation))
    assert without.code == 403, "and not as itself"


OTHERS = {
    "all": NODE_POD_PROBES,
    "watch-of-all": f"{NODE_POD_PROBES}?watch=1&timeoutSeconds=1",
    "all-but-its-own": f"{NODE_POD_PROBES}?fieldSelector=metadata.name%21%3D{{i.own}}",
    "another": NODE_POD_PROBES + "/{i.other}",
    "list-of-another": of("{i.other}"),
    "watch-of-another": of("{i.other}", watch=True),
    "secret-that-its-kubelet-may-read": "/api/v1/namespaces/{i.namespace}/secrets/of-the-pod",
    "secrets": "/api/v1/secrets",
    "pod-of-its-node": "/api/v1/namespaces/{i.namespace}/pods/{i.own}",
    "pods-of-its-node": "/api/v1/pods?fieldSelector=spec.nodeName%3D{i.own}",
    "node": "/api/v1/nodes/{i.own}",
    "roles": CLUSTER_ROLES.path(),
}


@pytest.mark.parametrize("path", OTHERS.values(), ids=OTHERS)
def test_a_stolen_token_reads_nothing_else(installation: Installation, path: str) -> None:
    assert read(installation, path, installation.own).code == 403
    assert read(installation, path, installation.other).code == 403
    assert installation.daemon.send("GET", path.format(i=installation)).code == 403


def test_a_stolen_token_writes_nothing_as_its_node(
    installation: Installation, admin: Kubectl
) -> None:
    path = f"{NODE_POD_PROBES}/{installation.own}/status"
    body: Json = json.loads(admin.run("get", "nodepodprobe", installation.own, "-o", "json"))
    user = node_user(installation.own)
    as_node = installation.daemon.send(
        "PUT",
        path,
        body,
        as_user=user,
    )
    assert as_node.code == 403
    assert installation.daemon.send("PUT", path, body).code == 200


def test_no_malformed_patch_reads_another_node(installation: Installation) -> None:
    """The error of a patch that makes an object malformed contains the object; no admission policy comes before it."""
    path = f"{NODE_POD_PROBES}/{installation.other}/status"
    answer = installation.daemon.send("PATCH", path, {"metadata": {"labels": "x"}})
    assert answer.code == 403


UNBOUND = "not bound to this node"


@cases(
    "on unbound path text",
    other_node=("other", False, "/{i.own}", UNBOUND),
    unbound_token=("own", True, "/{i.own}", UNBOUND),
    no_verb=("own", False, "/{i.own}/status", "the daemon's role does not allow"),
    no_role=("bare", False, "/{i.bare}", "a manager runs with --own-node-reads"),
)
def test_a_refused_read_says_what_to_do(
    installation: Installation, admin: Kubectl, on: str, unbound: bool, path: str, text: str
) -> None:
    """On a server without the feature, the explanation is about that in every case."""
    node = getattr(installation, on)
    pod = installation.own if on == "other" else node
    bound = () if unbound else bound_to("Pod", pod)
    token = TokenClient(
        admin,
        token_of(admin, DAEMON, installation.namespace, *bound),
    )
    target = NODE_POD_PROBES + path.format(i=installation)
    answer = token.send("GET", target, as_user=node_user(node))
    assert answer.code == 403
    if installation.old:
        text = "use Kubernetes 1.36 or newer"
    assert text in explained(json.loads(answer.text)["message"])
