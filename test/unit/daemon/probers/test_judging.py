"""Verdicts of probes with `extract` and `successWhen`: what succeeds, what fails, and what has no result."""

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
from kruise_probe.daemon.cri.runtime import ExecImpossible
from kruise_probe.daemon.desired import invalid_reason
from kruise_probe.daemon.probers import judging, prober_for
from kruise_probe.daemon.probers.prober import CouldNotProbe, Output, Target

pytestmark = pytest.mark.sockets

TABLE = load_table(Path(__file__).parents[3] / "data" / "judging.yaml", {})
QUEUE: Json = TABLE["queue"]


async def outcome(probe: Probe, target: Target, criteria: Json, runtime: ScriptedRuntime) -> str:
    """`+` and the message of a success, `-` and that of a failure, or why there is no result."""
    entry = entry_of(probe, **criteria)
    assert not invalid_reason(entry)
    prober = prober_for(entry, commands=runtime, user_agent="x")
    try:
        result = await prober.run(target)
    except CouldNotProbe as error:
        return str(error)
    return f"{'+' if result.succeeded else '-'}{result.message}"


def criteria_of(row: Json) -> Json:
    fields = {"extract": row.get("extract"), "successWhen": row.get("when")}
    return {name: value for name, value in fields.items() if value}


def script_of(row: Json) -> Script:
    if "impossible" in row:
        return refuse(ExecImpossible(row["impossible"]))
    return exit_with(row.get("exit", 0), row["stdout"].encode(), row.get("stderr", "").encode())


@pytest.mark.parametrize("row", TABLE["commands"].values(), ids=TABLE["commands"])
async def test_a_command_succeeds_if_all_clauses_hold(row: Json) -> None:
    runtime = ScriptedRuntime()
    container = runtime.start()
    runtime.on_exec("check", script=script_of(row))
    probe = Probe(exec=ExecAction(command=("check",)))

    found = await outcome(probe, Target("", container.id), criteria_of(row), runtime)
    assert found == row["result"]


def response_of(row: Json) -> bytes:
    if "raw" in row:
        return str(row["raw"]).encode()
    body: bytes = row["body"].encode()
    lines = [f"HTTP/1.1 {row['status']} X", f"Content-Length: {len(body)}"]
    head: str = "\r\n".join([*lines, *row.get("headers", ()), "", ""])
    return head.encode() + body


@pytest.mark.parametrize("row", TABLE["responses"].values(), ids=TABLE["responses"])
async def test_a_response_succeeds_if_all_clauses_hold(row: Json) -> None:
    async with serving(answering(response_of(row))) as server:
        probe = Probe(http_get=HTTPGetAction(port=server.port), timeout_seconds=5)
        target = Target("127.0.0.1", "c")

        found = await outcome(probe, target, criteria_of(row), ScriptedRuntime())
    assert found == row["result"]


@cases(
    "criteria reason",
    pattern=({"extract": {"regex": "("}}, "extract.regex: Invalid value"),
    costly=({"successWhen": {"regex": "(a{900}){3}"}}, "successWhen.regex: Invalid value"),
    step=({"extract": {**QUEUE, "step": 0}}, "extract.step: Invalid value"),
    bounds=({"extract": QUEUE, "successWhen": {"min": 2, "max": 1}}, "successWhen.min"),
    path=({"extract": {"jsonPath": "$.a"}}, "extract.jsonPath: Invalid value"),
    nothing=({"extract": {}}, "extract: Required value"),
)
def test_a_hand_written_entry_that_is_invalid_does_not_run(criteria: Json, reason: str) -> None:
    entry = entry_of(Probe(exec=ExecAction(command=("check",))), **criteria)

    assert invalid_reason(entry).startswith(f"InvalidProbe: {reason}")


@pytest.mark.parametrize("handler", ["tcpSocket", "grpc"])
def test_a_handler_without_output_has_no_value(handler: str) -> None:
    probe = msgspec.convert({handler: {"port": 1}}, Probe)

    assert "is for exec and httpGet only" in invalid_reason(entry_of(probe, extract=QUEUE))


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
    runtime = ScriptedRuntime()
    container = runtime.start()
    runtime.on_exec("check", script=succeed(output))
    probe = Probe(exec=ExecAction(command=("check",)))
    entry = entry_of(probe, exclusive={"epoch": {"regex": "timeline (.*)"}})
    result = await prober_for(entry, commands=runtime, user_agent="x").run(Target("", container.id))
    assert (result.succeeded, result.epoch, result.message) == (
        True,
        epoch,
        output.decode().strip(),
    )


def test_a_line_that_is_cut_has_no_epoch() -> None:
    entry = entry_of(
        Probe(exec=ExecAction(command=("check",))),
        exclusive={"epoch": {"regex": "timeline (.*)"}},
    )
    output = Output(b"primary\ntimeline 1", is_cut=True)
    result = at_once(judging.judged(output, judging.criteria_of(entry)))
    assert (result.succeeded, result.epoch) == (True, None)
