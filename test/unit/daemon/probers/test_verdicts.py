"""Verdicts of probes with `extract` and `successWhen`: what succeeds, what fails, and what has no result."""

from typing import Any

import msgspec
import pytest
from support.builders import entry_of
from support.cases import cases
from support.fake_runtime import Script, ScriptedRuntime, exit_with, refuse, succeed
from support.scripted_server import answering, serving
from support.wire import Json

from kruise_probe.api.core import ExecAction, HTTPGetAction, Probe
from kruise_probe.daemon.cri.runtime import ExecImpossible
from kruise_probe.daemon.desired import invalid_reason
from kruise_probe.daemon.probers import prober_for
from kruise_probe.daemon.probers.prober import CouldNotProbe, Target

pytestmark = pytest.mark.sockets

QUEUE: Json = {"metric": {"name": "queue"}}


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


async def of_command(script: Script, **criteria: Any) -> str:
    runtime = ScriptedRuntime()
    container = runtime.start()
    runtime.on_exec("check", script=script)
    probe = Probe(exec=ExecAction(command=("check",)))
    return await outcome(probe, Target("", container.id), criteria, runtime)


async def of_response(response: bytes, **criteria: Any) -> str:
    async with serving(answering(response)) as server:
        probe = Probe(http_get=HTTPGetAction(port=server.port), timeout_seconds=5)
        return await outcome(probe, Target("127.0.0.1", "c"), criteria, ScriptedRuntime())


EXTRACTED = {
    "value-alone": (succeed(b"noise\nqueue 3\n", b"warning"), {}, "+3"),
    "no-value": (succeed(b"other 3\n"), {}, "NoValue: no sample of queue"),
    "failure-stays-a-failure": (exit_with(1, b"queue 3", b"broken"), {}, "-broken\nqueue 3"),
    "no-such-program": (refuse(ExecImpossible("no such file")), {}, "ExecImpossible: no such file"),
    "exit-code": (exit_with(2, b"queue 3"), {"exitCodes": [0, 2]}, "+3"),
    "other-exit-code": (
        exit_with(1, b"queue 3", b"broken"),
        {"exitCodes": [0, 2]},
        "-exit code 1, not in exitCodes 0, 2\nbroken\nqueue 3",
    ),
    "exit-code-0-excluded": (succeed(b""), {"exitCodes": [3]}, "-exit code 0, not in exitCodes 3"),
    "at-least": (succeed(b"queue 3"), {"min": 3, "max": "3.0"}, "+3"),
    "too-small": (succeed(b"queue 3"), {"min": "3.5"}, "-queue 3 < min 3.5"),
    "too-large": (succeed(b"queue 12"), {"max": 10}, "-queue 12 > max 10"),
    "regex-holds": (succeed(b"role: primary\nqueue 3"), {"regex": "^role: primary$"}, "+3"),
    "regex": (succeed(b"queue 3"), {"regex": "^r"}, "-no line matches regex '^r'"),
    "first-clause-first": (succeed(b"queue 3"), {"regex": "r", "max": 1}, "-no line matches regex 'r'"),
    "no-value-no-comparison": (succeed(b"q 3"), {"max": 1}, "NoValue: no sample of queue"),
    "too-costly": (succeed(b"x" * 200_000), {"regex": "a.{0,99}b"}, "NoValue: pattern too costly"),
}  # fmt: skip


@cases("script when expected", **{name.replace("-", "_"): row for name, row in EXTRACTED.items()})
async def test_a_command_succeeds_if_all_clauses_hold(
    script: Script, when: Json, expected: str
) -> None:
    criteria = {"extract": QUEUE} | ({"successWhen": when} if when else {})

    assert await of_command(script, **criteria) == expected


@cases(
    "step output expected",
    down=(5, b"queue 12", "+10"),
    of_a_failure=(5, b"queue 33", "-queue 30 in steps of 5 > max 30"),
    compared_before=(20, b"queue 30", "+20"),
)
async def test_a_number_is_rounded_after_it_is_compared(
    step: int, output: bytes, expected: str
) -> None:
    extract = {**QUEUE, "step": step}

    assert await of_command(succeed(output), extract=extract, successWhen={"max": 30}) == expected


@cases(
    "extract when expected",
    for_step=({"regex": "a.c", "step": 5}, {}, 'NoValue: "abc" is no number, which step needs'),
    to_compare=({"regex": "a.c"}, {"min": 1}, 'NoValue: "abc" is no number, which a comparison needs'),
    text=({"regex": "a.c"}, {}, "+abc"),
    number_of_a_text=({"regex": r"\d.*"}, {"min": "1.1"}, "+1.10"),
    rounded_text=({"regex": r"\d.*", "step": "0.5"}, {}, "+1"),
    default=({"regex": "x", "default": "7", "step": 5}, {}, "+5"),
    default_fails=({"regex": "x", "default": "7"}, {"max": 5}, "-value 7 > max 5"),
)  # fmt: skip
async def test_a_text_is_published_as_it_is_but_numbers_are_needed_for_some_fields(
    extract: Json, when: Json, expected: str
) -> None:
    criteria = {"extract": extract} | ({"successWhen": when} if when else {})

    assert await of_command(succeed(b"abc\n1.10\n"), **criteria) == expected


async def test_output_without_extract_is_the_message() -> None:
    assert (
        await of_command(exit_with(3, b"out\n", b"err"), successWhen={"exitCodes": [3]}) == "+out"
    )


def response(status: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


CHUNKED = b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(
    b"%x\r\n%s\r\n" % (len(part), part) for part in (b"a 1\nque", b"ue 4\n")
)
LONG = b'filler{a="b"} 1\n' * 12_000
REDIRECT = response(302, b"queue 3\n", "Location: http://127.0.0.2/")
RESPONSES = {
    "200": (response(200, b"queue 3\n"), {}, "+3"),
    "at-the-end-of-200-kb": (response(200, LONG + b"queue 3\n"), {}, "+3"),
    "beyond-256-kib": (response(200, LONG * 2 + b"queue 3\n"), {}, "NoValue: no sample of queue in the first 262,144 bytes"),
    "chunked": (CHUNKED + b"0\r\n\r\n", {}, "+4"),
    "chunked-without-end": (CHUNKED, {}, "-unexpected EOF"),
    "encoded": (response(200, b"queue 3\n", "Content-Encoding: gzip"), {}, "NoValue: the body has Content-Encoding gzip, which was not requested"),
    "identity": (response(200, b"queue 3\n", "Content-Encoding: Identity"), {}, "+3"),
    "503": (response(503, b"queue 3\n"), {}, "-HTTP probe failed with statuscode: 503: queue 3"),
    "503-allowed": (response(503, b"queue 3\n"), {"statusCodes": [200, 503]}, "+3"),
    "range": (response(599, b"queue 3\n"), {"statusCodes": ["500-599"]}, "+3"),
    "200-excluded": (response(200, b"queue 3\n"), {"statusCodes": [503]}, "-HTTP probe failed with statuscode: 200, not in statusCodes 503: queue 3"),
    "redirect-to-another-host": (REDIRECT, {}, "+3"),
    "redirect-to-another-host-excluded": (REDIRECT, {"statusCodes": ["200-299"]}, "-HTTP probe failed with statuscode: 302, not in statusCodes 200-299: queue 3"),
    "empty": (response(200, b""), {}, "NoValue: the text is empty"),
}  # fmt: skip


@pytest.mark.parametrize("name", RESPONSES)
async def test_a_response_succeeds_if_all_clauses_hold(name: str) -> None:
    answer, when, expected = RESPONSES[name]
    criteria = {"extract": QUEUE} | ({"successWhen": when} if when else {})

    assert await of_response(answer, **criteria) == expected


async def test_a_status_code_alone_leaves_the_message_as_it_is() -> None:
    codes = {"statusCodes": [503]}

    assert await of_response(response(503, b"warm-up\n40%"), successWhen=codes) == "+warm-up\n40%"


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
