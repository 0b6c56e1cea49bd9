"""Every field of a probe, of its handlers and of its policies reaches all code that must read it.

A new field fails here until it has a row in test/data/fields.yaml with two valid values, and until it is in both CRDs, the reference and lint, changes
what the manager writes, the hash and the attempt, or is listed with the reason why not.
"""

import json
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from crd_schemas import definitions, schema_of
from support.builders import container_wire, marker, marker_wire, pod
from support.fields import MARKS, ROWS, put
from support.linting import lint_text
from support.wire import Json

from kruise_probe.api.fields import Rule, Shape, rule, shape_of
from kruise_probe.api.meta import HostPort
from kruise_probe.api.v1alpha1 import ContainerProbe, PodContainerProbe
from kruise_probe.controllers.compiled import compile_marker
from kruise_probe.controllers.plan import probes_of_marker
from kruise_probe.daemon.cri.runtime import ExecResult
from kruise_probe.daemon.desired import invalid_reason
from kruise_probe.daemon.probers import prober_for
from kruise_probe.daemon.probers.prober import CouldNotProbe, Target
from kruise_probe.lint import findings
from kruise_probe.manifests.crds import marker_crd, node_pod_probe_crd

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference.md").read_text()


WITHOUT_TRAFFIC = {
    "probe.httpGet.protocol": "HTTP1 is what every request is; it is in the hash, because a later version may allow others",
}


def leaves(shape: Shape, path: str = "") -> Iterator[str]:
    """The paths of all fields that have a value of their own."""
    for inner in shape.properties.values():
        place = f"{path}.{inner.name}" if path else inner.name
        if inner.properties:
            yield from leaves(inner, place)
        elif inner.items is not None and inner.items.properties:
            yield from leaves(inner.items, f"{place}[]")
        else:
            yield place


def test_every_field_has_a_row_here() -> None:
    assert sorted(leaves(shape_of(PodContainerProbe))) == sorted(ROWS)
    for field in shape_of(ContainerProbe).properties.values():
        assert field.name in {*ROWS, "probe", "extract", "successWhen", "exclusive"}


def written(path: str, value: object) -> Json:
    """A probe of a marker with this value."""
    found: Json = {"name": "p", "containerName": "main", "podConditionType": "x/y"}
    for place, needed in {**ROWS[path].get("needs", {}), path: value}.items():
        put(found, place, needed)
    return found


def field_of(crd: Json, path: str) -> Json:
    """The schema of a field of the spec."""
    schema: Json = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for step in ("spec", *path.split(".")):
        name = step.removesuffix("[]")
        schema = schema["properties"][name]
        if name != step:
            schema = schema["items"]
    return schema


def both(path: str) -> tuple[Json, Json]:
    row = ROWS[path]
    return written(path, row["before"]), written(path, row["after"])


def entry(wire: Json) -> ContainerProbe:
    return msgspec.convert(wire, PodContainerProbe).entry("m")


def compiled_fields(wire: Json) -> dict[str, object]:
    """What the manager keeps of a probe."""
    (probe,) = compile_marker(marker(probes=[wire])).probes
    fields = probe._asdict()
    del fields["entry_bytes"]
    return fields


@pytest.mark.parametrize("path", ROWS)
def test_every_field_changes_the_hash_or_is_listed_with_a_reason(path: str) -> None:
    before, after = map(entry, both(path))
    row = ROWS[path]
    unchanged = "no-attempt" in row or row.get("no-entry") == MARKS
    assert (before.hash == after.hash) == unchanged


@pytest.mark.parametrize("path", ROWS)
def test_every_field_is_in_the_crds_the_reference_and_lint(path: str) -> None:
    assert field_of(marker_crd(), f"probes[].{path}")["description"]
    assert f"`spec.probes[].{path}`" in REFERENCE
    if "no-entry" not in ROWS[path]:
        # In a NodePodProbe, `probe` and similar fields have an open schema, so their inner fields are not in it.
        field = path.partition(".")[0]
        assert field_of(node_pod_probe_crd(), f"podProbes[].probes[].{field}")
    for wire in both(path):
        text = json.dumps(marker_wire(probes=[wire]))
        rules = {finding.rule for finding in lint_text(text).findings}
        assert rules.isdisjoint({findings.Rule.UNKNOWN_FIELD, findings.Rule.WRONG_TYPE})


@pytest.mark.parametrize("path", [path for path, row in ROWS.items() if "no-entry" not in row])
def test_every_field_of_an_entry_reaches_the_nodes(path: str) -> None:
    containers = pod(containers=[container_wire("main"), container_wire("side")]).containers
    planned = []
    for wire in both(path):
        compiled = compile_marker(marker(probes=[wire]))
        planned.append(probes_of_marker(compiled, containers, frozenset()))
    before, after = planned
    assert before
    assert after
    assert before != after


@pytest.mark.parametrize(
    "path", [path for path, row in ROWS.items() if row.get("no-entry") == MARKS]
)
def test_every_field_about_marks_reaches_the_manager(path: str) -> None:
    before, after = both(path)
    assert compiled_fields(before) != compiled_fields(after)


class Recorder(socket.socket):
    """A connected socket that records what is sent, and commands that succeed."""

    calls: ClassVar[list[object]] = []

    def connect_ex(self, address: Any) -> int:
        self.calls.append(tuple(address))
        return 0

    def send(self, data: Any, flags: int = 0) -> int:
        sent = bytes(data)
        self.calls.append("TLS" if sent[:1] == b"\x16" else sent)
        return len(sent)

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        return b"HTTP/1.1 204 X\r\n\r\n"

    async def exec_sync(
        self, container_id: str, command: Sequence[str], *, timeout_seconds: float
    ) -> ExecResult:
        self.calls.append((container_id, command, timeout_seconds))
        output = b'{"a": 1, "b": 2}' if command == ("json",) else b"a 1\nb 2\n"
        return ExecResult(0, output, b"")


async def calls_of(tried: ContainerProbe) -> list[object]:
    """What one attempt sends, and its result."""
    Recorder.calls.clear()

    def open_socket(_: HostPort) -> socket.socket:
        return Recorder(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)

    with Recorder() as commands:
        prober = prober_for(
            tried,
            commands=commands,
            user_agent="test",
            open_socket=open_socket,
        )
        target = Target("10.0.0.1", tried.container_name)
        try:
            Recorder.calls.append(await prober.run(target))
        except CouldNotProbe as error:
            Recorder.calls.append(str(error))
    return list(Recorder.calls)


@pytest.mark.parametrize("path", ROWS)
async def test_every_field_in_the_hash_changes_the_attempt(path: str) -> None:
    before, after = map(entry, both(path))
    if before.hash != after.hash:
        assert invalid_reason(before) == invalid_reason(after) == ""
        changed = await calls_of(before) != await calls_of(after)
        assert changed == (path not in WITHOUT_TRAFFIC)


def test_the_crds_are_those_of_the_declarations() -> None:
    for path, text in definitions():
        assert path.read_text() == text, f"{path.name} is stale; run hack/gen_config.py"


def test_a_rule_that_reads_an_open_field_is_refused() -> None:
    """CEL has no such field, so the API server would refuse the CRD."""

    class Reading(ContainerProbe, frozen=True):
        RULES: ClassVar[tuple[Rule, ...]] = (
            rule("needs exec", "has(self.probe.exec)", lambda _: True),
        )

    with pytest.raises(ValueError, match="CEL has no such field"):
        schema_of(shape_of(Reading))
