"""E10 on a real node, where the runtime reports no address of a pod in the host's network."""

import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.hollow import marker_object, probe
from support.kubectl import Kubectl
from support.real_node import busybox_pod
from support.target import status_of
from support.wire import Json

FORGED = "127.0.0.99"


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
    return probe(
        name,
        probe={
            "tcpSocket": {"port": port},
            "periodSeconds": 1,
            "failureThreshold": 1,
        },
        podConditionType=f"example.com/{name}",
        markerPolicy=None,
    )


def is_probed(newest: dict[str, Json]) -> bool:
    return "web" in newest and status_of(newest["web"], "example.com/own") == "True"


@pytest.mark.on_the_node
def test_e10_an_edited_pod_status_leads_no_probe_elsewhere(namespace: Kubectl) -> None:
    with socket.create_server(("0.0.0.0", 0)) as free:
        own = free.getsockname()[1]
    with (
        local_listener(FORGED) as (elsewhere, callers),
        namespace.watch("pods") as pods,
        Kubectl(namespace.kubeconfig).watch("nodepodprobes") as reports,
    ):
        namespace.apply(
            busybox_pod(
                "web",
                "httpd",
                "-f",
                "-p",
                str(own),
                hostNetwork=True,
            ),
            marker_object(tcp_probe("own", own), tcp_probe("elsewhere", elsewhere)),
        )
        pods.until("the node's own address is probed", is_probed, timeout=90)
        web = namespace.get("pod", "web")

        def has_address(report: Json, ip: str) -> bool:
            target = (web["metadata"]["uid"], ip)
            entries = report["spec"].get("podProbes", ())
            return target in [(entry["uid"], entry["IP"]) for entry in entries]

        def was_sent_elsewhere(_: dict[str, Json]) -> bool:
            """In any version, as the kubelet soon corrects the status."""
            return any(has_address(report, FORGED) for _, report in reports.versions)

        def is_corrected(newest: dict[str, Json]) -> bool:
            return any(has_address(report, web["status"]["podIP"]) for report in newest.values())

        status = json.dumps(
            {
                "status": {
                    "podIP": FORGED,
                    "podIPs": [{"ip": FORGED}],
                }
            }
        )
        patch = ("patch", "pod", "web", "--subresource=status", "--type=merge", "-p", status)
        for _ in range(100):  # as the kubelet may correct the status before the manager reads it
            namespace.run(*patch)
            if was_sent_elsewhere({}):
                break
        reports.until("the daemon is sent elsewhere", was_sent_elsewhere)
        reports.until("kubelet has corrected the status", is_corrected, timeout=120)
        pods.until("its own address is probed again", is_probed, timeout=60)
    assert callers == []
