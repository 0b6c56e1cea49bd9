"""The kubelet's own probers, built from its source, in a process."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

from support.patience import PATIENCE_SECONDS
from support.wire import Json

HERE = Path(__file__).parent
CLUSTER = HERE.parents[2] / "hack" / "cluster"
BUILD_SECONDS = 600


class Kubelet:
    """A process with kubelet's probers in it."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen(
            [program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def probe(self, ip: str, probe: Json, timeout: float) -> dict[str, str]:
        return self.probe_all(ip, [probe], timeout)[0]

    def probe_all(self, ip: str, probes: Sequence[Json], timeout: float) -> list[dict[str, str]]:
        """The outcomes of these probes, which run at once."""
        assert self._process.stdin
        assert self._process.stdout
        for number, probe in enumerate(probes):
            asked = {
                "id": number,
                "ip": ip,
                "probe": probe,
                "timeout": timeout,
            }
            self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        outcomes = [json.loads(self._process.stdout.readline()) for _ in probes]
        return sorted(outcomes, key=itemgetter("id"))

    def end(self) -> None:
        _ = self._process.communicate(timeout=PATIENCE_SECONDS)


def built_kubelet(folder: Path) -> Kubelet:
    """Builds it as hack/cluster builds the kubelet, so that nearly all of it is in Go's cache."""
    built = subprocess.run(
        [CLUSTER, "bin"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    module = Path(built.strip()) / "module"
    for file in (HERE / "kubelet" / "main.go", module / "go.mod", module / "go.sum"):
        _ = shutil.copy(file, folder)
    static = os.environ | {"CGO_ENABLED": "0"}
    for command in (
        # The prober does not need it, and the proxy does not serve it in all versions.
        ["go", "mod", "edit", "-droprequire=k8s.io/sample-apiserver"],
        ["go", "build", "-mod=mod", "-trimpath", "-tags=providerless", "-o", "prober", "."],
    ):
        _ = subprocess.run(
            command,
            cwd=folder,
            check=True,
            timeout=BUILD_SECONDS,
            env=static,
        )
    return Kubelet(folder / "prober")
