"""hack/cluster on a machine that is not empty: what was there before `up` is named where it is in the way, and stays."""

import os
import socket
import subprocess
from pathlib import Path

HACK = Path(__file__).parents[3] / "hack"
PARTS = ("common", "binaries", "processes", "pki", "control_plane", "node", "teardown")

BEFORE = """\
iptables nat :KUBE-SERVICES -
iptables nat :KUBE-SVC-THEIRS -
iptables nat -A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
iptables nat -A KUBE-SERVICES -d 10.1.1.1/32 -j KUBE-SVC-THEIRS
iptables filter :KUBE-FORWARD -
"""
AFTER = """\
iptables nat :KUBE-POSTROUTING -
iptables nat :KUBE-SERVICES -
iptables nat :KUBE-SVC-OURS -
iptables nat -A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
iptables nat -A POSTROUTING -m comment --comment ours -j KUBE-POSTROUTING
iptables nat -A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-OURS
"""


def shell(script: str, folder: Path, *, stdin: str = "", **environ: str) -> tuple[str, str]:
    """What a script writes, and its errors, that uses the parts of hack/cluster."""
    sourced = "".join(f"source {HACK}/lib/{part}.sh\n" for part in PARTS)
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\nhack={HACK}\n{sourced}{script}"],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "KRUISE_PROBE_CLUSTER_DIR": str(folder), **environ},
    )
    return done.stdout, done.stderr


def test_rules_of_another_kube_proxy_come_back_and_ours_go(tmp_path: Path) -> None:
    undo = 'rules_undone iptables nat "$BEFORE"'
    assert shell(undo, tmp_path, stdin=AFTER, BEFORE=BEFORE) == (
        """\
*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-THEIRS - [0:0]
-D POSTROUTING -m comment --comment ours -j KUBE-POSTROUTING
-F KUBE-POSTROUTING
-F KUBE-SVC-OURS
-X KUBE-POSTROUTING
-X KUBE-SVC-OURS
-A KUBE-SERVICES -d 10.1.1.1/32 -j KUBE-SVC-THEIRS
COMMIT
""",
        "",
    )


def test_nothing_is_undone_where_there_is_nothing(tmp_path: Path) -> None:
    assert shell('rules_undone ip6tables nat ""', tmp_path, stdin=AFTER) == ("", "")


def test_what_was_there_before_is_no_leftover(tmp_path: Path) -> None:
    (tmp_path / "found").write_text("/sys/fs/cgroup/k8s.io\n/run/containerd\n")
    present = "/sys/fs/cgroup/k8s.io\n/sys/fs/cgroup/k8s.io/1\n/run/containerd/s\n"
    assert shell("only_new", tmp_path, stdin=present) == (
        "/sys/fs/cgroup/k8s.io/1\n/run/containerd/s\n",
        "",
    )


def test_a_taken_port_is_named_with_the_process_that_holds_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        api = str(port - 2)
        _, errors = shell("check_ports no-node", tmp_path, KRUISE_PROBE_CLUSTER_PORT=api)
    name = Path("/proc/self/comm").read_text().strip()
    assert f"{port} ({name}, pid {os.getpid()})" in errors
    assert "KRUISE_PROBE_CLUSTER_PORT" in errors
