"""Verdicts of probes with `extract` and `successWhen`: what succeeds, what fails, and what has no result."""

from collections.abc import Awaitable
from pathlib import Path

import msgspec
import pytest
from support.builders import entry_of
from support.cases import cases
from support.computations import at_once
from support.fake_runtime import Script, ScriptedRuntime, exit_with, refuse, succeed
from support.scripted_server import answering, serving
from support.tables import load_table
from support.wire import Json

from kruise_probe.api.probe import ExecAction, HTTPGetAction, Probe
from kruise_probe.api.v1alpha1 import ContainerProbe
from kruise_probe.daemon.cri.runtime import ExecImpossible
from kruise_probe.daemon.desired import invalid_reason
from kruise_probe.daemon.probers import judging, prober_for
from kruise_probe.daemon.probers.prober import CouldNotProbe, Output, ProbeResult, Target

pytestmark = pytest.mark.sockets

DATA = Path(__file__).parents[3] / "data"
TABLE = load_table(DATA / "judging.yaml", {})
QUEUE: Json = TABLE["queue"]


CHECK = Probe(exec=ExecAction(command=("check",)))


async def run_check(entry: ContainerProbe, script: Script) -> ProbeResult:
    """Run the command `check`, which acts as `script`."""
    runtime = ScriptedRuntime()
    container = runtime.start()
    runtime.on_exec("check", script=script)
    prober = prober_for(entry, commands=runtime, user_agent="x")
    return await prober.run(Target("", container.id))


async def outcome(attempt: Awaitable[ProbeResult]) -> str:
    """`+` and the message of a success, `-` and that of a failure, or why there is no result."""
    try:
        result = await attempt
    except CouldNotProbe as error:
        return str(error)
    sign = "+" if result.succeeded else "-"
    return sign + result.message


def judged_entry(probe: Probe, row: Json) -> ContainerProbe:
    criteria = {}
    if "extract" in row:
        criteria["extract"] = row["extract"]
    if "when" in row:
        criteria["successWhen"] = row["when"]
    entry = entry_of(probe, **criteria)
    assert not invalid_reason(entry)
    return entry


def script_of(row: Json) -> Script:
    if "impossible" in row:
        return refuse(ExecImpossible(row["impossible"]))
    stdout = row["stdout"].encode()
    stderr = row.get("stderr", "").encode()
    return exit_with(row.get("exit", 0), stdout, stderr)


@pytest.mark.parametrize("row", TABLE["commands"].values(), ids=TABLE["commands"])
async def test_a_command_succeeds_if_all_clauses_hold(row: Json) -> None:
    entry = judged_entry(CHECK, row)

    attempt = run_check(entry, script_of(row))
    assert await outcome(attempt) == row["result"]


def response_of(row: Json) -> bytes:
    if "raw" in row:
        return str(row["raw"]).encode()
    body: bytes = row["body"].encode()
    lines = [
        f"HTTP/1.1 {row['status']} X",
        f"Content-Length: {len(body)}",
        *row.get("headers", ()),
    ]
    head = "\r\n".join(lines) + "\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize("row", TABLE["responses"].values(), ids=TABLE["responses"])
async def test_a_response_succeeds_if_all_clauses_hold(row: Json) -> None:
    async with serving(answering(response_of(row))) as server:
        probe = Probe(http_get=HTTPGetAction(port=server.port), timeout_seconds=5)
        entry = judged_entry(probe, row)
        prober = prober_for(entry, commands=ScriptedRuntime(), user_agent="x")

        attempt = prober.run(Target("127.0.0.1", "c"))
        assert await outcome(attempt) == row["result"]


@cases(
    "criteria reason",
    pattern=(
        {"extract": {"regex": "("}},
        "extract.regex: Invalid value",
    ),
    costly=(
        {"successWhen": {"regex": "(a{900}){3}"}},
        "successWhen.regex: Invalid value",
    ),
    step=(
        {"extract": {**QUEUE, "step": 0}},
        "extract.step: Invalid value",
    ),
    bounds=(
        {"extract": QUEUE, "successWhen": {"min": 2, "max": 1}},
        "successWhen.min",
    ),
    path=(
        {"extract": {"jsonPath": "$.a"}},
        "extract.jsonPath: Invalid value",
    ),
    nothing=(
        {"extract": {}},
        "extract: Required value",
    ),
)
def test_a_hand_written_entry_that_is_invalid_does_not_run(criteria: Json, reason: str) -> None:
    entry = entry_of(CHECK, **criteria)

    assert invalid_reason(entry).startswith(f"InvalidProbe: {reason}")


@pytest.mark.parametrize("handler", ["tcpSocket", "grpc"])
def test_a_handler_without_output_has_no_value(handler: str) -> None:
    probe = msgspec.convert({handler: {"port": 1}}, Probe)

    assert "is for exec and httpGet only" in invalid_reason(entry_of(probe, extract=QUEUE))


EXCLUSIVE = entry_of(CHECK, exclusive={"epoch": {"regex": "timeline (.*)"}})


@cases(
    "output epoch",
    number=(b"x\ntimeline 7\n", 7),
    largest=(b"timeline 18446744073709551615", 2**64 - 1),
    over_64_bits=(b"timeline 18446744073709551616", None),
    zeros=(b"timeline 0007", 7),
    no_number=(b"timeline x", None),
    negative=(b"timeline -7", None),
    nothing=(b"primary", None),
)
async def test_the_epoch_of_a_success_is(output: bytes, epoch: int | None) -> None:
    result = await run_check(EXCLUSIVE, succeed(output))
    assert result.succeeded
    assert result.epoch == epoch
    assert result.message == output.decode().strip()


def test_a_line_that_is_cut_has_no_epoch() -> None:
    output = Output(b"primary\ntimeline 1", is_cut=True)
    result = at_once(judging.judged(output, judging.criteria_of(EXCLUSIVE)))
    assert result.succeeded
    assert result.epoch is None
