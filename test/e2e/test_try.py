"""`try` through a real API server, kubelet and container runtime says what the daemon then reports.

It runs as a service account with the role of docs/try.md.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import HealthServicer
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from support.cases import cases
from support.hollow import marker_object, probe
from support.kubectl import Kubectl, KubectlWatch
from support.pages import block
from support.patience import PATIENCE_SECONDS
from support.real_node import busybox_pod, kubeconfig_of
from support.shell import kruise_probe
from support.target import condition, status_of
from support.wire import Json, typed

SERVER = """
mkdir -p /tmp/www
echo fine > /tmp/www/healthz
httpd -p 8080 -h /tmp/www
exec sleep 100000
"""
PROBES: dict[str, Json] = {
    "exec-succeeds": {"exec": {"command": ["sh", "-c", "echo full"]}},
    "exec-fails": {"exec": {"command": ["sh", "-c", "echo out; echo bad >&2; exit 3"]}},
    "exec-hangs": {
        "exec": {"command": ["sleep", "60"]},
        "timeoutSeconds": 10,
    },
    "http-by-name": {"httpGet": {"port": "http", "path": "/healthz"}},
    "http-404": {"httpGet": {"port": 8080, "path": "/nothing"}},
    "http-refused": {"httpGet": {"port": 8081}},
    "http-without-tls": {"httpGet": {"port": 8080, "scheme": "HTTPS"}},
    "tcp-succeeds": {"tcpSocket": {"port": "http"}},
    "tcp-refused": {"tcpSocket": {"port": 8081}},
    "grpc-refused": {"grpc": {"port": 8081}},
    "grpc-of-an-http-server": {"grpc": {"port": 8080}},
}


def condition_type(probe_name: str) -> str:
    return f"e2e.example.com/{probe_name}"


def marker(name: str, actions: dict[str, Json]) -> Json:
    """A marker of the pod, with a probe for each action."""
    probes: list[Json] = []
    for probe_name, action in actions.items():
        tried = probe(
            probe_name,
            probe={"periodSeconds": 1, "timeoutSeconds": 20, **action},
            podConditionType=condition_type(probe_name),
            markerPolicy=None,
        )
        probes.append(tried)
    return marker_object(*probes, name=name, app=name)


class Trying:
    """Runs `kruise-probe try` with a kubeconfig."""

    def __init__(self, kubeconfig: str, namespace: str) -> None:
        self._kubeconfig = kubeconfig
        self._namespace = namespace

    def attempts(self, pod: str, actions: dict[str, Json]) -> tuple[int, dict[str, Json]]:
        """The exit code, and the attempts of these actions by the name of the probe."""
        flags = ("-n", self._namespace, "--kubeconfig", self._kubeconfig)
        file = json.dumps(marker(pod, actions))
        ran = kruise_probe("try", *flags, pod, "-o", "json", "-f", "-", input=file)
        assert ran.stdout, ran.stderr
        attempts = json.loads(ran.stdout)["attempts"]
        return ran.returncode, {attempt["probe"]: attempt for attempt in attempts}


@pytest.fixture(scope="module")
def trying(namespace: Kubectl, admin: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Trying:
    """As a service account with the role of the documentation."""
    (role,) = block("try.md", "Permissions").documents
    account = typed("ServiceAccount", metadata={"name": "tester"})
    namespace.apply(account, role)
    namespace.run(
        "create",
        "rolebinding",
        "tester",
        f"--role={role['metadata']['name']}",
        f"--serviceaccount={namespace.namespace}:tester",
    )
    folder = tmp_path_factory.mktemp("trying")
    kubeconfig = kubeconfig_of(admin, "tester", folder, namespace=namespace.namespace)
    return Trying(kubeconfig, namespace.namespace)


@pytest.fixture(scope="module")
def pods(namespace: Kubectl) -> Iterator[KubectlWatch]:
    game = busybox_pod(
        "game",
        "sh",
        "-c",
        SERVER,
        labels={"app": "game"},
    )
    game["spec"]["containers"][0]["ports"] = [{"name": "http", "containerPort": 8080}]
    namespace.apply(game)
    with namespace.watch("pods") as watched:
        watched.until(
            "the pod is Ready",
            lambda newest: "game" in newest and status_of(newest["game"], "Ready") == "True",
            timeout=3 * PATIENCE_SECONDS,
        )
        yield watched


def test_state_and_message_are_those_that_the_daemon_then_reports(
    namespace: Kubectl, pods: KubectlWatch, trying: Trying
) -> None:
    before = pods.newest["game"]["metadata"]["resourceVersion"]
    code, found = trying.attempts("game", PROBES)
    assert code == 1
    assert namespace.get("pod", "game")["metadata"]["resourceVersion"] == before

    namespace.apply(marker("game", PROBES))
    types = list(map(condition_type, PROBES))
    pods.until(
        "every condition",
        lambda newest: all(status_of(newest["game"], kind) for kind in types),
    )
    reported: dict[str, tuple[str, str]] = {}
    for name in PROBES:
        shown = condition(pods.newest["game"], condition_type(name))
        reported[name] = (shown["status"], shown.get("message", ""))
    tried = {
        name: (attempt["conditionStatus"], attempt["message"]) for name, attempt in found.items()
    }
    assert tried == reported
    namespace.run("delete", "podprobemarker", "game", "--timeout=60s")


@cases(
    "command state message",
    no_program=(["no-such-program"], "Unknown", "ExecImpossible: "),
    endless_output=(["yes"], "Unknown", "ExecOutputTooLarge: "),
    escape_sequence=(["printf", "\\033[2Jhi"], "Succeeded", "hi"),
)
def test_hostile_commands_have_a_result_in_time(
    trying: Trying, pods: KubectlWatch, command: list[str], state: str, message: str
) -> None:
    _, found = trying.attempts("game", {"x": {"exec": {"command": command}}})
    attempt = found["x"]
    assert attempt["state"] == state
    assert attempt["message"].startswith(message)


@pytest.fixture
def health_port() -> Iterator[int]:
    """A gRPC server of this process: no image of the tests has one."""
    servicer = HealthServicer()
    servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    servicer.set("down", health_pb2.HealthCheckResponse.NOT_SERVING)
    with ThreadPoolExecutor() as threads:
        server = grpc.server(threads)
        add_HealthServicer_to_server(servicer, server)
        port: int = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield port
        server.stop(grace=None).wait()


@pytest.mark.on_the_node
def test_grpc_health_service_of_the_hosts_network(
    namespace: Kubectl, trying: Trying, health_port: int
) -> None:
    sleeping = ("sleep", "100000")
    namespace.apply(
        busybox_pod(
            "host",
            *sleeping,
            labels={"app": "host"},
            hostNetwork=True,
        )
    )
    namespace.run("wait", "--for=condition=Ready", "pod/host", f"--timeout={PATIENCE_SECONDS:g}s")
    actions: dict[str, Json] = {
        "up": {"grpc": {"port": health_port}},
        "down": {"grpc": {"port": health_port, "service": "down"}},
    }
    code, found = trying.attempts("host", actions)
    assert code == 1
    assert (found["up"]["state"], found["up"]["message"]) == ("Succeeded", "service healthy")
    assert found["down"]["message"] == 'service unhealthy (responded with "NOT_SERVING")'
