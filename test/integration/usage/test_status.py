"""The command `status`: its output, its errors, and how --watch ends."""

import asyncio
import json
import os
import pty
import shutil
import signal
import termios
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

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

Shell = Callable[[str], Awaitable[Ran]]
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


@pytest_asyncio.fixture(loop_scope="session")
async def shell(
    playground: ControlledPlayground, ns: UsageNamespace, tmp_path: Path
) -> AsyncIterator[Shell]:
    """A shell in a namespace with a marker and a pod that has its result."""
    await ns.apply(POD)
    await ns.explained("web", "")
    yield lambda script: run(script, kubeconfig=playground.kubeconfig, folder=tmp_path)


@pytest.mark.parametrize(("form", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
async def test_output_for_programs_contains_the_newest_results(
    shell: Shell, ns: UsageNamespace, form: str, load: Callable[[str], Json]
) -> None:
    ran = await shell(f"kruise-probe status -n {ns.namespace} -o {form}")

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("{") == (form == "json")
    view = load(ran.out)
    (marker,) = view["markers"]
    assert marker["counts"] == {"pods": 1, "succeeded": 1, "failed": 0, "unknown": 0, "pending": 0}
    (result,) = marker["pods"][0]["results"]
    assert (result["state"], result["message"]) == ("Succeeded", "fine")
    assert marker["problems"] == view["notes"] == []


@cases(
    "arguments text",
    marker=("status -n {} marker mraker", "mraker does not exist. Did you mean 'marker'?"),
    pod=("explain -n {} wbe", "wbe does not exist. Did you mean 'web'?"),
)
async def test_a_typo_in_a_name_is_one_line(
    shell: Shell, ns: UsageNamespace, arguments: str, text: str
) -> None:
    ran = await shell(f"kruise-probe {arguments.format(ns.namespace)}")
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
    shell: Shell, ns: UsageNamespace, arguments: str, begins: str
) -> None:
    ran = await shell(f"kruise-probe {arguments} -n {ns.namespace}")
    assert ran.code == 0
    assert ran.out.startswith(begins.format(ns.namespace))
    assert bool(ran.out) == bool(begins) != bool(ran.err)


async def test_json_of_several_pods_is_a_list(shell: Shell, ns: UsageNamespace) -> None:
    one = await shell(f"kruise-probe explain web -n {ns.namespace} -o json")
    several = await shell(f"kruise-probe explain web pod/web -n {ns.namespace} -o json")
    assert json.loads(one.out)["pod"] == "web"
    assert [each["pod"] for each in json.loads(several.out)["items"]] == ["web", "web"]


@cases(
    "resource code reason text",
    forbidden=("pods", 403, "Forbidden", "ask for this permission"),
    no_crds=("podprobemarkers", 404, "NotFound", "manifests --crds-only"),
    no_login=("pods", 401, "Unauthorized", "log in again"),
)
async def test_refused_request_has_a_remedy(
    shell: Shell, playground: ControlledPlayground, resource: str, code: int, reason: str, text: str
) -> None:
    faults = playground.server.faults
    faults.failing[f"list {resource}"] = Failure(code, reason, "no")
    try:
        ran = await shell("kruise-probe status")
    finally:
        faults.failing.clear()
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (1, "", 1)
    assert text in ran.err


NEEDS_KUBECTL = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")


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
async def test_names_are_completed(
    shell: Shell, ns: UsageNamespace, script: str, completions: str
) -> None:
    async def completed() -> bool:
        """A completion without an answer of the API server within 2 s is empty."""
        ran = await shell(script.format(ns.namespace))
        assert ran.code == 0, ran.err
        return ran.out == completions.format(ns.namespace)

    await until("the name is completed", completed)


async def test_watch_prints_every_change(
    shell: Shell, playground: ControlledPlayground, ns: UsageNamespace
) -> None:
    async with watch(playground, "-n", ns.namespace, "-o", "json") as process:
        seen = [state(await process.stdout.readline())]
        (ns.folder("web") / "bad").touch()
        while seen[-1] != "Failed":
            seen.append(state(await process.stdout.readline()))
    assert seen[0] == "Succeeded"


async def test_watch_notes_that_the_api_server_does_not_respond(shell: Shell) -> None:
    documents = [LoadedObject("here", document) for document in yaml.safe_load_all(POD)]
    async with AsyncExitStack() as stack:
        async with ControlledPlayground(documents=documents) as stopping:
            process = await stack.enter_async_context(watch(stopping, "-A", "-o", "json"))
            notes = await notes_of(process)
        while not notes:
            notes = await notes_of(process)
        process.kill()
        _, err = await process.communicate()
    assert notes[0].startswith("not current, retrying: ")
    assert err == b""


async def notes_of(process: Any) -> list[str]:
    """Of the next line; fails at the end of the output."""
    found: list[str] = json.loads(await process.stdout.readline())["notes"]
    return found


@pytest.mark.parametrize("form", ["json", "table"])
async def test_watch_ends_silently_if_the_pipe_is_closed(
    shell: Shell, playground: ControlledPlayground, ns: UsageNamespace, form: str
) -> None:
    async with watch(playground, "-n", ns.namespace, "-o", form) as process:
        await process.stdout.readline()
        process._transport.get_pipe_transport(1).close()  # asyncio has no other way
        (ns.folder("web") / "bad").touch()
        err = await process.stderr.read()
        code = await process.wait()
    assert (code, err.decode()) == (1, "")


@pytest.mark.parametrize("number", SIGNALS)
async def test_watch_restores_the_terminal_on_a_signal(
    shell: Shell, playground: ControlledPlayground, ns: UsageNamespace, number: int
) -> None:
    async with on_terminal(playground, ns, "xterm") as (process, terminal, _, _):
        output = await read_until(terminal, "Succeeded")
        assert ALTERNATE_SCREEN in output
        process.send_signal(number)
        output = await read_until(terminal, LEAVE_SCREEN)
        assert SHOW_CURSOR in output
        assert await process.wait() == 128 + number


@pytest.mark.parametrize(("lines", "columns"), [(15, 60), (24, 80), (40, 120)])
async def test_watch_scrolls_by_keys_and_q_ends_it(
    shell: Shell, playground: ControlledPlayground, ns: UsageNamespace, lines: int, columns: int
) -> None:
    """Seven markers of a container that does not exist, beside one that works."""
    for number in range(7):
        await ns.apply(
            POD.partition("---")[2]
            .replace("name: marker", f"name: broken-{number}")
            .replace("containerName: main", "containerName: mian")
            .replace("name: checked", "name: lost")
            .replace("example.com/checked", f"example.com/broken-{number}")
        )
    await ns.explained("web", "ContainerNotFound", probe="lost")
    async with on_terminal(playground, ns, "xterm", lines, columns) as (process, terminal, _, keys):
        output = await read_until(terminal, "q ends")
        assert "broken-0" in output
        assert "PROBE" in output
        keys.write(b"\x1b[6~" * 50)
        output = await read_until(terminal, "\nArrows and PgUp, PgDn scroll, q ends")
        assert "Succeeded" in output
        keys.write(b"q")
        await read_until(terminal, LEAVE_SCREEN)
        assert await process.wait() == 0


@pytest.mark.parametrize("number", SIGNALS)
async def test_watch_into_a_pipe_ends_with_the_documented_code_and_leaves_no_file(
    shell: Shell, playground: ControlledPlayground, ns: UsageNamespace, tmp_path: Path, number: int
) -> None:
    """The kubeconfig has its CA inline, which the official package writes into a file."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    async with watch(playground, "-n", ns.namespace, TMPDIR=str(folder)) as process:
        await process.stdout.readline()
        process.send_signal(number)
        _, err = await process.communicate()
    assert (process.returncode, err.strip()) == (130 if number == signal.SIGINT else -number, b"")
    assert not list(folder.iterdir())


async def test_watch_ends_silently_if_the_terminal_is_closed(
    shell: Shell, playground: ControlledPlayground, ns: UsageNamespace
) -> None:
    async with on_terminal(playground, ns, "xterm") as (process, terminal, hang_up, keys):
        await read_until(terminal, "Succeeded")
        hang_up()
        keys.close()
        process.send_signal(signal.SIGHUP)
        err = (await process.stderr.read()).decode()
        assert (await process.wait(), err) == (128 + signal.SIGHUP, "")


async def test_watch_prints_changes_on_a_dumb_terminal(
    shell: Shell, playground: ControlledPlayground, ns: UsageNamespace
) -> None:
    async with on_terminal(playground, ns, "dumb") as (_, terminal, _, _):
        assert ALTERNATE_SCREEN not in await read_until(terminal, "Succeeded")


@asynccontextmanager
async def watch(
    playground: ControlledPlayground,
    *options: str,
    stdin: int | None = None,
    stdout: int = asyncio.subprocess.PIPE,
    **variables: str,
) -> AsyncIterator[Any]:
    """Run `status --watch`. The process ends with the context, however the context ends."""
    process = await asyncio.create_subprocess_exec(
        "kruise-probe", "status", "--watch", *options,
        env={**environment(playground.kubeconfig), **variables},
        stdin=stdin, stdout=stdout, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


ALTERNATE_SCREEN, LEAVE_SCREEN, SHOW_CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


@asynccontextmanager
async def on_terminal(
    playground: ControlledPlayground,
    ns: UsageNamespace,
    term: str,
    lines: int = 24,
    columns: int = 80,
) -> AsyncIterator[tuple[Any, Any, Any, Any]]:
    """Run `status --watch` on a terminal; yield the process, the terminal's output, how to close it, and its keys."""
    controller, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (lines, columns))
    keys = os.fdopen(os.dup(controller), "wb", buffering=0)
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(controller, "rb", buffering=0)
    )
    options = ("-n", ns.namespace)
    try:
        async with watch(
            playground, *options, stdin=terminal, stdout=terminal, TERM=term
        ) as process:
            yield process, reader, transport.close, keys
    finally:
        transport.close()
        keys.close()
        os.close(terminal)


async def read_until(terminal: asyncio.StreamReader, text: str) -> str:
    """The output of the terminal up to `text`."""
    output = ""
    while text not in output:
        more = await terminal.read(4096)
        assert more, output
        output += more.decode()
    return output


def state(line: bytes) -> str:
    found: str = json.loads(line)["markers"][0]["pods"][0]["results"][0]["state"]
    return found
