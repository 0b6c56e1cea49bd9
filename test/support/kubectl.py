"""kubectl for tests: JSON in and out, and watches to wait on.

Does not use the project's own client.
"""

import json
import os
import secrets
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

from support.patience import PATIENCE_SECONDS
from support.wire import typed

from kruise_probe.manifests.crds import all_crds

Object = dict[str, Any]


class KubectlError(AssertionError):
    """kubectl failed; the message is its stderr."""


class Kubectl:
    """kubectl with one kubeconfig; every call has a deadline. Without a namespace, objects name their own."""

    def __init__(self, kubeconfig: str, *, namespace: str = "") -> None:
        self.kubeconfig = kubeconfig
        self.namespace = namespace

    def run(
        self,
        *arguments: str,
        stdin: str | None = None,
        timeout: float = 2 * PATIENCE_SECONDS,
    ) -> str:
        done = subprocess.run(
            self._command(*arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, *objects: Object) -> None:
        self._run_with(objects, "apply")

    @contextmanager
    def applied(self, *objects: Object) -> Iterator[None]:
        """These objects, until the end of the block."""
        self.apply(*objects)
        try:
            yield
        finally:
            self._run_with(objects, "delete", "--wait=false", "--ignore-not-found")

    def _run_with(self, objects: Sequence[Object], *arguments: str) -> None:
        listed = typed("List", items=objects)
        self.run(*arguments, "-f", "-", stdin=json.dumps(listed))

    @contextmanager
    def new_namespace(self, prefix: str = "contract") -> Iterator["Kubectl"]:
        """kubectl in a new namespace, which is deleted at the end of the block."""
        made = Kubectl(self.kubeconfig, namespace=f"{prefix}-{secrets.token_hex(4)}")
        with self.applied(typed("Namespace", metadata={"name": made.namespace})):
            yield made

    def install_crds(self) -> None:
        """Applies our CRDs, and returns when they are served."""
        self.apply(*all_crds())
        self.until_established()

    def until_established(self) -> None:
        """Waits for our CRDs only: other tests may be deleting theirs."""
        names = (f"crd/{plural}.apps.kruise.io" for plural in ("podprobemarkers", "nodepodprobes"))
        self.run("wait", "--for=condition=Established", *names, f"--timeout={PATIENCE_SECONDS:g}s")

    def get(self, *arguments: str) -> Object:
        found: Object = json.loads(self.run("get", *arguments, "-o", "json"))
        return found

    def items(self, *arguments: str) -> list[Object]:
        listed: list[Object] = self.get(*arguments)["items"]
        return listed

    def exec(self, pod: str, script: str) -> str:
        """Runs a shell script in the pod's first container."""
        return self.run("exec", pod, "--", "sh", "-c", script)

    @contextmanager
    def watch(self, kind: str, *arguments: str) -> Iterator["KubectlWatch"]:
        """Watches all objects of a kind in the namespace."""
        command = ("get", kind, "--watch", "--output-watch-events", "-o", "json", *arguments)
        with tempfile.TemporaryFile("w+") as errors, self._watching(command, errors) as watched:
            try:
                yield watched
            except AssertionError as error:
                errors.seek(0)
                said = errors.read() or "nothing"
                error.add_note(f"kubectl {' '.join(command)} wrote to stderr: {said}")
                raise

    @contextmanager
    def _watching(self, command: Sequence[str], errors: IO[str]) -> Iterator["KubectlWatch"]:
        process = subprocess.Popen(
            self._command(*command),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdout
        watched = KubectlWatch()
        reader = threading.Thread(target=watched.follow, args=(process.stdout,), daemon=True)
        reader.start()
        try:
            yield watched
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE_SECONDS)
            reader.join(timeout=PATIENCE_SECONDS)
            process.stdout.close()

    def _command(self, *arguments: str) -> list[str]:
        kubectl = os.environ.get("KUBECTL", "kubectl")
        scope = ["--namespace", self.namespace] if self.namespace else []
        return [kubectl, "--kubeconfig", self.kubeconfig, *scope, *arguments]


class KubectlWatch:
    """The versions of each object that a watch has returned, with their times."""

    def __init__(self) -> None:
        self.newest: dict[str, Object] = {}
        self.versions: list[tuple[float, Object]] = []
        self._changed = threading.Condition()

    def follow(self, lines: IO[str]) -> None:
        for line in lines:
            event = json.loads(line)
            obj = event["object"]
            name = obj["metadata"]["name"]
            with self._changed:
                if event["type"] == "DELETED":
                    self.newest.pop(name, None)
                else:
                    self.newest[name] = obj
                self.versions.append((time.monotonic(), obj))
                self._changed.notify_all()

    def until(
        self,
        what: str,
        holds: Callable[..., object],
        *,
        timeout: float = PATIENCE_SECONDS,
    ) -> float:
        """Waits until `holds(newest)`; returns the monotonic time of that moment.

        Raises:
            AssertionError: it did not within `timeout` seconds; the message shows what was there.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: holds(self.newest), timeout):
                gist = {name: _gist(obj) for name, obj in self.newest.items()}
                shown = json.dumps(gist, indent=1)
                raise AssertionError(f"not within {timeout} s: {what}\n{shown}")
            return time.monotonic()


def _gist(obj: Object) -> Object:
    metadata = obj["metadata"]
    status = obj.get("status", {})
    return {
        "labels": metadata.get("labels"),
        "annotations": metadata.get("annotations"),
        "status": status.get("conditions", status),
    }
