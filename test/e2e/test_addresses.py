"""E10 on a real node, where the runtime reports no address of a pod in the host's network."""

import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from support.hollow import marker_object, probe
from support.kubectl import Kubectl
from support.real_node import busybox_pod
from support.target import status_of
from support.wire import Json


@contextmanager
def local_listener(host: str) -> Iterator[tuple[int, list[str]]]:
    """A port of this machine, which is the node, and who has connected to it."""
    callers: list[str] = []

    class Note(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            callers.append(str(self.client_address))

    with socketserver.ThreadingTCPServer((host, 0), Note) as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        try:
            yield server.server_address[1], callers
        finally:
            server.shutdown()
            serving.join(10)


def tcp_probe(name: str, port: int) -> Json:
    how = {"tcpSocket": {"port": port}, "periodSeconds": 1, "failureThreshold": 1}
    return probe(name, probe=how, podConditionType=f"example.com/{name}", markerPolicy=None)


def is_probed(newest: dict[str, Json]) -> bool:
    return "web" in newest and status_of(newest["web"], "example.com/own") == "True"


@pytest.mark.on_the_node
def test_e10_an_edited_pod_status_leads_no_probe_elsewhere(namespace: Kubectl) -> None:
    with local_listener("127.0.0.99") as (elsewhere, callers), ExitStack() as stack:
        with socket.create_server(("0.0.0.0", 0)) as free:
            own = free.getsockname()[1]
        server = ("httpd", "-f", "-p", str(own))
        pod = busybox_pod("web", *server, hostNetwork=True)
        marker = marker_object(tcp_probe("own", own), tcp_probe("elsewhere", elsewhere))
        pods = stack.enter_context(namespace.watch("pods"))
        reports = stack.enter_context(Kubectl(namespace.kubeconfig).watch("nodepodprobes"))
        namespace.apply(pod, marker)
        pods.until("the node's own address is probed", is_probed, timeout=90)
        uid = namespace.get("pod", "web")["metadata"]["uid"]
        address = namespace.get("pod", "web")["status"]["podIP"]

        def has_address(report: Json, ip: str) -> bool:
            entries = report["spec"].get("podProbes", ())
            return any((each["uid"], each["IP"]) == (uid, ip) for each in entries)

        def was_sent_elsewhere(_: dict[str, Json]) -> bool:
            """In any version, as the kubelet soon corrects the status."""
            return any(has_address(each, "127.0.0.99") for _, each in reports.versions)

        def is_corrected(newest: dict[str, Json]) -> bool:
            return any(has_address(each, address) for each in newest.values())

        forged = {"status": {"podIP": "127.0.0.99", "podIPs": [{"ip": "127.0.0.99"}]}}
        patch = ("--subresource=status", "--type=merge", "-p", json.dumps(forged))
        for _ in range(100):  # as the kubelet may correct the status before the manager reads it
            namespace.run("patch", "pod", "web", *patch)
            if was_sent_elsewhere({}):
                break
        reports.until("the daemon is sent elsewhere", was_sent_elsewhere)
        reports.until("kubelet has corrected the status", is_corrected, timeout=120)
        pods.until("its own address is probed again", is_probed, timeout=60)
    assert callers == []
