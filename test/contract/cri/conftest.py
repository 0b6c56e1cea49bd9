"""One suite for three runtimes: the playground's, the scripted one of unit tests, and a real one if there is one.

The real one listens at the socket that KRUISE_PROBE_CONTRACT_CRI names; its pod is made through the cluster of
KRUISE_PROBE_CONTRACT_KUBECONFIG (or KUBECONFIG), on whose only node it runs.
"""

import asyncio
import os
import secrets
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest
from contract.embedded_runtime import embedded_runtime
from support.fake_runtime import ExecCall, ScriptedRuntime, served
from support.kubectl import Kubectl, Object
from support.patience import PATIENCE_SECONDS
from support.wire import typed

from kruise_probe.api.times import utc_now
from kruise_probe.daemon.cri import grpc_runtime
from kruise_probe.daemon.cri.grpc_runtime import GrpcRuntime
from kruise_probe.daemon.cri.runtime import ExecImpossible, ExecResult

ENDPOINT_VARIABLE = "KRUISE_PROBE_CONTRACT_CRI"
IMAGE = "kruise-probe-test:busybox"
REST = ["sh", "-c", "while :; do sleep 1; done"]
END = ["sh", "-c", "exit 3"]


class Subject(msgspec.Struct):
    """A runtime, and a pod in it: its container `main` runs, its container `ended` has ended with 3."""

    runtime: GrpcRuntime
    pod_uid: str

    async def container_id(self, name: str = "main") -> str:
        for container in await self.runtime.list_containers():
            if (container.pod_uid, container.name) == (self.pod_uid, name):
                return container.id
        raise AssertionError(f"the runtime lists no container {name}")


async def run_locally(call: ExecCall, folder: Path) -> ExecResult:
    """A script of the scripted runtime that runs the command itself."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        try:
            process = await asyncio.create_subprocess_exec(
                *call.command,
                cwd=folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        except OSError as error:
            raise ExecImpossible(f"failed to start exec: {error}") from None
        try:
            code = await process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        out = os.pread(stdout.fileno(), 1 << 24, 0)
        err = os.pread(stderr.fileno(), 1 << 24, 0)
    return ExecResult(code if code >= 0 else 128 - code, out, err)


@asynccontextmanager
async def scripted_subject(folder: Path) -> AsyncIterator[Subject]:
    scripted = ScriptedRuntime(default_script=lambda call: run_locally(call, folder))
    main = scripted.start("contract", "main")
    ended = scripted.start("contract", "ended")
    for container in (main, ended):
        container.created_at = container.started_at = utc_now()
    scripted.stop(ended)
    async with served(scripted) as endpoint, GrpcRuntime(endpoint) as runtime:
        yield Subject(runtime, "contract")


@pytest.fixture(params=["embedded", "scripted", "real"])
async def subject(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Subject]:
    monkeypatch.setattr(grpc_runtime, "CALL_TIMEOUT_SECONDS", PATIENCE_SECONDS)
    if request.param == "scripted":
        async with scripted_subject(tmp_path) as scripted:
            yield scripted
        return
    if request.param == "real":
        pod_uid: str = request.getfixturevalue("real_pod_uid")
        async with GrpcRuntime(os.environ[ENDPOINT_VARIABLE]) as runtime:
            yield Subject(runtime, pod_uid)
        return
    # A folder of its own: the path of a socket is short.
    with tempfile.TemporaryDirectory(prefix="cri-") as folder:
        async with (
            embedded_runtime(Path(folder)) as embedded,
            GrpcRuntime(embedded.endpoint) as runtime,
        ):
            sandbox = embedded.sandbox(pod="contract")
            embedded.start(REST, sandbox=sandbox)
            embedded.start(END, sandbox=sandbox, name="ended")
            yield Subject(runtime, sandbox.uid)


@pytest.fixture(scope="session")
def real_pod_uid() -> Iterator[str]:
    kubeconfig = os.environ.get("KRUISE_PROBE_CONTRACT_KUBECONFIG") or os.environ.get("KUBECONFIG")
    if not (os.environ.get(ENDPOINT_VARIABLE) and kubeconfig):
        pytest.skip(f"no real container runtime: {ENDPOINT_VARIABLE} or the kubeconfig is not set")
    kubectl = Kubectl(kubeconfig, namespace="default")
    name = f"contract-{secrets.token_hex(4)}"
    container = {"image": IMAGE, "imagePullPolicy": "Never"}
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {**container, "name": "main", "command": REST},
            {**container, "name": "ended", "command": END},
        ],
    }

    def is_as_wanted(pods: dict[str, Object]) -> bool:
        if name not in pods:
            return False
        statuses = pods[name]["status"].get("containerStatuses", [])
        states = {status["name"]: next(iter(status["state"])) for status in statuses}
        return states == {"main": "running", "ended": "terminated"}

    kubectl.apply(typed("Pod", metadata={"name": name}, spec=spec))
    try:
        with kubectl.watch("pods", f"--field-selector=metadata.name={name}") as pods:
            _ = pods.until(
                "main runs and ended has ended", is_as_wanted, timeout=3 * PATIENCE_SECONDS
            )
            yield pods.newest[name]["metadata"]["uid"]
    finally:
        kubectl.run("delete", "pod", name, "--grace-period=0", "--force", "--wait=false")
