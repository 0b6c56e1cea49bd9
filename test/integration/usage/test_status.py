"""The command `status`: its output, its errors, and how --watch ends."""

import asyncio
import json
import os
import pty
import shutil
import signal
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest
import pytest_asyncio
import yaml
from integration.usage_namespace import UsageNamespace
from support.cases import cases
from support.patience import PATIENCE_SECONDS
from support.playground import ControlledPlayground
from support.programs import until
from support.shell import Ran, environment, run
from support.wire import Json

from kruise_probe_playground.apiserver.failures import Failure
from kruise_probe_playground.documents import LoadedObject

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec: {containers: [{name: main, image: none, command: [sleep, "1000"]}]}
---
apiVersion: apps.kruise.io/v1alpha1
kind: PodProbeMarker
metadata: {name: marker}
spec:
  selector: {matchLabels: {app: web}}
  probes:
  - name: checked
    containerName: main
    probe: {exec: {command: [sh, -c, "echo fine; test ! -e bad"]}, timeoutSeconds: 10}
    podConditionType: example.com/checked
"""


class Shell(NamedTuple):
    """A shell beside a namespace with a marker and a pod that has its result."""

    ns: UsageNamespace
    folder: Path

    async def run(self, script: str) -> Ran:
        return await run(script, kubeconfig=self.ns.playground.kubeconfig, folder=self.folder)

    async def command(self, arguments: str) -> Ran:
        """Runs `kruise-probe ARGUMENTS` in the namespace."""
        return await self.run(f"kruise-probe {arguments} -n {self.ns.namespace}")

    def watch(self, *options: str, **more: Any) -> AbstractAsyncContextManager[Any]:
        kubeconfig = self.ns.playground.kubeconfig
        return watch(
            kubeconfig,
            "-n",
            self.ns.namespace,
            *options,
            **more,
        )

    def break_the_pod(self) -> None:
        """From now on its probe fails."""
        (self.ns.folder() / "bad").touch()


@pytest_asyncio.fixture(loop_scope="session")
async def shell(ns: UsageNamespace, tmp_path: Path) -> Shell:
    await ns.apply(POD)
    await ns.explained("web", "")
    return Shell(ns, tmp_path)


@pytest.mark.parametrize(("form", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
async def test_output_for_programs_contains_the_newest_results(
    shell: Shell, form: str, load: Callable[[str], Json]
) -> None:
    ran = await shell.command(f"status -o {form}")

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("{") == (form == "json")
    view = load(ran.out)
    (marker,) = view["markers"]
    assert marker["counts"] == {
        "pods": 1,
        "succeeded": 1,
        "failed": 0,
        "unknown": 0,
        "pending": 0,
    }
    (result,) = marker["pods"][0]["results"]
    assert (result["state"], result["message"]) == ("Succeeded", "fine")
    assert marker["problems"] == view["notes"] == []


@cases(
    "arguments text",
    marker=("status marker mraker", "mraker does not exist. Did you mean 'marker'?"),
    pod=("explain wbe", "wbe does not exist. Did you mean 'web'?"),
)
async def test_a_typo_in_a_name_is_one_line(shell: Shell, arguments: str, text: str) -> None:
    assert_one_line(await shell.command(arguments), text)


def assert_one_line(ran: Ran, text: str) -> None:
    """The command has failed with one line that contains the text."""
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (1, "", 1)
    assert text in ran.err


@cases(
    "arguments begins",
    markers_without_the_label=("status -l team=a", ""),
    markers_by_label=("status -l '!team'", "{}/marker "),
    names_and_kinds=("status marker ppm/marker", "{}/marker "),
    pods_by_label=("explain -l app=web", "{}/web: 1 of 1 probes works (1 Succeeded)\n"),
    no_pods=("explain -l app=db", ""),
    pod_by_kind=("explain pods/web", "{}/web: 1 of 1 probes works (1 Succeeded)\n"),
)
async def test_labels_and_kinds_select_objects_as_in_kubectl(
    shell: Shell, arguments: str, begins: str
) -> None:
    ran = await shell.command(arguments)
    assert ran.code == 0
    assert ran.out.startswith(begins.format(shell.ns.namespace))
    assert bool(ran.out) == bool(begins) != bool(ran.err)


async def test_json_of_several_pods_is_a_list(shell: Shell) -> None:
    one = await shell.command("explain web -o json")
    several = await shell.command("explain web pod/web -o json")
    assert json.loads(one.out)["pod"] == "web"
    assert [item["pod"] for item in json.loads(several.out)["items"]] == ["web", "web"]


@cases(
    "resource code reason text",
    forbidden=("pods", 403, "Forbidden", "ask for this permission"),
    no_crds=("podprobemarkers", 404, "NotFound", "manifests --crds-only"),
    no_login=("pods", 401, "Unauthorized", "log in again"),
)
async def test_refused_request_has_a_remedy(
    shell: Shell, resource: str, code: int, reason: str, text: str
) -> None:
    failing = shell.ns.playground.server.faults.failing
    failing[f"list {resource}"] = Failure(code, reason, "no")
    try:
        ran = await shell.command("status")
    finally:
        failing.clear()
    assert_one_line(ran, text)


NEEDS_KUBECTL = pytest.mark.skipif(
    not shutil.which("kubectl"),
    reason="kubectl is not installed",
)


def bash(words: str) -> str:
    variables = f"COMP_WORDS='kruise-probe {words}' COMP_CWORD={len(words.split())}"
    return f"_KRUISE_PROBE_COMPLETE=bash_complete {variables} kruise-probe"


@cases(
    "script completions",
    markers=(bash("status -n {} ma"), "plain,marker\n"),
    pods=(bash("explain -n {} w"), "plain,web\n"),
    namespaces=(bash("status -n {}"), "plain,{}\n"),
    by_kubectl=pytest.param(
        "kubectl __complete kruise-probe status -n {} ma", "marker\n:4\n", marks=NEEDS_KUBECTL
    ),
)
async def test_names_are_completed(shell: Shell, script: str, completions: str) -> None:
    namespace = shell.ns.namespace

    async def completed() -> bool:
        """A completion without an answer of the API server within 2 s is empty."""
        ran = await shell.run(script.format(namespace))
        assert ran.code == 0, ran.err
        return ran.out == completions.format(namespace)

    await until("the name is completed", completed)


async def test_watch_prints_every_change(shell: Shell) -> None:
    async with shell.watch("-o", "json") as process:

        async def state() -> str:
            (marker,) = (await next_line(process))["markers"]
            found: str = marker["pods"][0]["results"][0]["state"]
            return found

        assert await state() == "Succeeded"
        shell.break_the_pod()
        while await state() != "Failed":
            pass


async def test_watch_notes_that_the_api_server_does_not_respond(shell: Shell) -> None:
    documents = [LoadedObject("here", document) for document in yaml.safe_load_all(POD)]
    async with AsyncExitStack() as stack:
        async with ControlledPlayground(documents=documents) as stopping:
            watching = watch(stopping.kubeconfig, "-A", "-o", "json")
            process = await stack.enter_async_context(watching)
            notes = (await next_line(process))["notes"]
        while not notes:
            notes = (await next_line(process))["notes"]
        process.kill()
        _, err = await process.communicate()
    assert notes[0].startswith("not current, retrying: ")
    assert err == b""


async def next_line(process: Any) -> Json:
    """The next line of JSON; fails at the end of the output."""
    found: Json = json.loads(await process.stdout.readline())
    return found


@pytest.mark.parametrize("form", ["json", "table"])
async def test_watch_ends_silently_if_the_pipe_is_closed(shell: Shell, form: str) -> None:
    async with shell.watch("-o", form) as process:
        await process.stdout.readline()
        process._transport.get_pipe_transport(1).close()  # asyncio has no other way
        shell.break_the_pod()
        err = await process.stderr.read()
        code = await process.wait()
    assert (code, err.decode()) == (1, "")


@pytest.mark.parametrize("number", SIGNALS)
async def test_watch_restores_the_terminal_on_a_signal(shell: Shell, number: int) -> None:
    async with on_terminal(shell) as terminal:
        assert ALTERNATE_SCREEN in await terminal.until("Succeeded")
        terminal.process.send_signal(number)
        assert SHOW_CURSOR in await terminal.until(LEAVE_SCREEN)
        assert await terminal.process.wait() == 128 + number


@pytest.mark.parametrize(("lines", "columns"), [(15, 60), (24, 80), (40, 120)])
async def test_watch_scrolls_by_keys_and_q_ends_it(shell: Shell, lines: int, columns: int) -> None:
    """Seven markers of a container that does not exist, beside one that works."""
    _, marker = yaml.safe_load_all(POD)
    (probe,) = marker["spec"]["probes"]
    probe |= {"name": "lost", "containerName": "mian"}
    for number in range(7):
        marker["metadata"]["name"] = f"broken-{number}"
        probe["podConditionType"] = f"example.com/broken-{number}"
        await shell.ns.apply_objects([marker])
    await shell.ns.explained("web", "ContainerNotFound", probe="lost")
    async with on_terminal(shell, lines=lines, columns=columns) as terminal:
        output = await terminal.until("q ends")
        assert "broken-0" in output
        assert "PROBE" in output
        terminal.keys.write(b"\x1b[6~" * 50)
        output = await terminal.until("\nArrows and PgUp, PgDn scroll, q ends")
        assert "Succeeded" in output
        terminal.keys.write(b"q")
        await terminal.until(LEAVE_SCREEN)
        assert await terminal.process.wait() == 0


@pytest.mark.parametrize("number", SIGNALS)
async def test_watch_into_a_pipe_ends_with_the_documented_code_and_leaves_no_file(
    shell: Shell, tmp_path: Path, number: int
) -> None:
    """The kubeconfig has its CA inline, which the official package writes into a file."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    async with shell.watch(TMPDIR=str(folder)) as process:
        await process.stdout.readline()
        process.send_signal(number)
        _, err = await process.communicate()
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert err.strip() == b""
    assert not list(folder.iterdir())


async def test_watch_ends_silently_if_the_terminal_is_closed(shell: Shell) -> None:
    async with on_terminal(shell) as terminal:
        process = terminal.process
        await terminal.until("Succeeded")
        terminal.hang_up()
        terminal.keys.close()
        process.send_signal(signal.SIGHUP)
        err = await process.stderr.read()
        assert (await process.wait(), err.decode()) == (128 + signal.SIGHUP, "")


async def test_watch_prints_changes_on_a_dumb_terminal(shell: Shell) -> None:
    async with on_terminal(shell, term="dumb") as terminal:
        assert ALTERNATE_SCREEN not in await terminal.until("Succeeded")


@asynccontextmanager
async def watch(
    kubeconfig: Path,
    *options: str,
    stdin: int | None = None,
    stdout: int = asyncio.subprocess.PIPE,
    **variables: str,
) -> AsyncIterator[Any]:
    """Run `status --watch`. The process ends with the context, however the context ends."""
    process = await asyncio.create_subprocess_exec(
        *("kruise-probe", "status", "--watch", *options),
        env={**environment(kubeconfig), **variables},
        stdin=stdin,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


ALTERNATE_SCREEN = "\x1b[?1049h"
LEAVE_SCREEN = "\x1b[?1049l"
SHOW_CURSOR = "\x1b[?25h"


class Terminal(NamedTuple):
    """A terminal with `status --watch` on it."""

    process: Any
    output: asyncio.StreamReader
    keys: IO[bytes]
    hang_up: Callable[[], None]

    async def until(self, text: str) -> str:
        """The next output up to `text`."""
        output = ""
        while text not in output:
            more = await self.output.read(4096)
            assert more, output
            output += more.decode()
        return output


@asynccontextmanager
async def on_terminal(
    shell: Shell, term: str = "xterm", lines: int = 24, columns: int = 80
) -> AsyncIterator[Terminal]:
    controller, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (lines, columns))
    keys = os.fdopen(os.dup(controller), "wb", buffering=0)
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(controller, "rb", buffering=0)
    )
    try:
        async with shell.watch(stdin=terminal, stdout=terminal, TERM=term) as process:
            yield Terminal(process, reader, keys, transport.close)
    finally:
        transport.close()
        keys.close()
        os.close(terminal)
