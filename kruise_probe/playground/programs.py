"""How the playground starts the manager and the daemons: as a cluster does, by their command lines.

Each takes a free port when it starts, and logs it: one that was chosen here could be taken by then.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kruise_probe.playground.child import Child
from kruise_probe.playground.guardian import MARK_VARIABLE
from kruise_probe.playground.node.embedded_node import EmbeddedNode
from kruise_probe.playground.workspace import Workspace

OnEnd = Callable[[str, int], None]

_OWN_SETTINGS: Final = ("KRUISE_PROBE_", "KUBECONFIG", "NODE_NAME", "POD_NAMESPACE")
"""Variables that would change what the programs do; here only the playground decides that."""


def manager(kubeconfig: Path, place: Workspace, *, on_end: OnEnd) -> Child:
    """The manager. It is the only one, so it does not stand for election."""
    flags = (
        "--metrics-addr=127.0.0.1:0",
        "--health-probe-addr=127.0.0.1:0",
        "--enable-leader-election=false",
    )
    return _child("manager", "manager", flags, kubeconfig, place, on_end)


def daemon(kubeconfig: Path, place: Workspace, node: EmbeddedNode, *, on_end: OnEnd) -> Child:
    """The daemon of one node, on that node's own socket."""
    flags = (
        "--addr=127.0.0.1:0",
        f"--node-name={node.name}",
        f"--cri-endpoint={node.cri_endpoint}",
    )
    return _child(f"daemon of {node.name}", "daemon", flags, kubeconfig, place, on_end)


def _child(
    name: str, mode: str, flags: tuple[str, ...], kubeconfig: Path, place: Workspace, on_end: OnEnd
) -> Child:
    file_name = name.replace(" of ", "-")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_OWN_SETTINGS)}
    return Child(
        name,
        (sys.executable, "-m", "kruise_probe", mode, f"--kubeconfig={kubeconfig}", *flags),
        environment={
            **kept,
            MARK_VARIABLE: f"{place.mark}/{file_name}",
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(place.folder),  # the official package copies the certificate there
        },
        log=place.folder / f"{file_name}.log",
        on_end=on_end,
    )
