"""The bytes of all caches that a tenant can fill: their estimates against the real memory, and their common bound."""

import ctypes
import gc
import random
import tracemalloc
from collections.abc import Callable, Iterator

import msgspec
import pytest
from support.builders import (
    container_wire,
    marker,
    owned_fields,
    pod,
    policy_wire,
    probe_wire,
)
from support.cases import cases
from support.output import print_line

from kruise_probe.api.caches import BUDGET, Budget, Cache
from kruise_probe.api.extraction import extract
from kruise_probe.api.resources import NODE_POD_PROBES
from kruise_probe.controllers.claims import claims_of
from kruise_probe.controllers.compiled import compile_marker
from kruise_probe.controllers.plan import probes_of_marker

LIMIT_BYTES = 3 << 20
LOOSEST = 8
"""An estimate may be this many times too large. Most are twice the memory."""


_FIELDS = [(f"field{number}", ctypes.c_size_t) for number in range(10)]
MALLINFO = ctypes.CDLL(None).mallinfo2
MALLINFO.restype = type("mallinfo2", (ctypes.Structure,), {"_fields_": _FIELDS})


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    _empty()
    monkeypatch.setattr(BUDGET, "limit_bytes", LIMIT_BYTES)
    yield LIMIT_BYTES
    _empty()


def _empty() -> None:
    BUDGET.age()
    BUDGET.age()


def names(number: int, count: int) -> list[str]:
    """Short strings of which none is in another list."""
    return [f"{number:x}.{each:x}" for each in range(count)]


def labels_renamed(number: int) -> None:
    pod(labels=dict.fromkeys(names(number, 30), f"v{number}"))


def annotations_of_completed_pods(number: int) -> None:
    pod(annotations={each: each + "\U0001f600" for each in names(number, 12)})


def pods_with_1000_named_ports(number: int) -> None:
    ports = dict.fromkeys(names(number, 1000), 30_000)
    pod(containers=[container_wire(ports=ports)])


def started_containers(number: int) -> None:
    pod(started=names(number, 60))


def fields_of_managers(number: int) -> None:
    pod(owned=owned_fields(labels=names(number, 100), conditions=names(number, 30)))


def selectors(number: int) -> None:
    expressions = [
        {"key": each, "operator": "In", "values": names(number, 32)} for each in names(number, 32)
    ]
    compile_marker(marker(selector={"matchExpressions": expressions}))


def claims_with_short_keys(number: int) -> None:
    policy = policy_wire("Succeeded", dict.fromkeys(names(number, 100), f"v{number}"))
    claims_of((compile_marker(marker(probes=[probe_wire(policies=[policy])])),))


def claims_with_wide_values(number: int) -> None:
    values = dict.fromkeys(names(number, 32), f"\U0001f600{number}" + "x" * 500)
    values_from_messages = [
        {"annotation": f"m{each}", "regex": f"(?:a|b|c|d|{each})+"} for each in names(number, 8)
    ]
    policy = policy_wire("Succeeded", None, values, values_from_messages)
    claims_of((compile_marker(marker(probes=[probe_wire(policies=[policy])])),))


def entries_of_deleted_pods(number: int) -> None:
    ports = dict.fromkeys(names(number, 1000), 30_000)
    of = pod(containers=[container_wire(ports=ports)])
    probes_of_marker(compile_marker(marker()), of.containers, of.started)


def commands_of_short_arguments(number: int) -> None:
    command = {"exec": {"command": names(number, 1000)}}
    of = pod()
    edited = compile_marker(marker(probes=[probe_wire(handler=command)]))
    assert probes_of_marker(edited, of.containers, of.started)


def probes_of_a_node(number: int) -> None:
    command = {"exec": {"command": names(number, 1000)}}
    probe = {"name": "web#healthy", "containerName": "main", "probe": command}
    entry = {"name": "web-0", "namespace": "default", "uid": "u", "IP": "", "probes": [probe]}
    wire = {"metadata": {"name": "node-1"}, "spec": {"podProbes": [entry]}}
    NODE_POD_PROBES.decode(msgspec.json.encode(wire))


def hashes_with_ports(number: int) -> None:
    handler = {"tcpSocket": {"port": "http"}}
    of = pod(containers=[container_wire(ports={"http": number})])
    compile_marker(marker(probes=[probe_wire(handler=handler)])).probes[0].hash_on(of)


def traced_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@cases(
    "fill",
    label_renames=labels_renamed,
    annotations=annotations_of_completed_pods,
    named_ports=pods_with_1000_named_ports,
    started_containers=started_containers,
    managed_fields=fields_of_managers,
    selectors=selectors,
    short_keys=claims_with_short_keys,
    wide_values=claims_with_wide_values,
    entries_of_deleted_pods=entries_of_deleted_pods,
    commands=commands_of_short_arguments,
    node_pod_probes=probes_of_a_node,
    hashes=hashes_with_ports,
)
def test_what_a_tenant_can_grow_takes_no_more_than_the_budget(
    fill: Callable[[int], None], limit: int
) -> None:
    tracemalloc.start()
    try:
        fill_until_eviction(fill, limit)
        used, with_caches = BUDGET.used_bytes, traced_bytes()
        _empty()
        kept = with_caches - traced_bytes()
    finally:
        tracemalloc.stop()
    print_line(f"{used:,} bytes by the estimate, {kept:,} in memory")
    assert kept <= used
    assert kept >= used // LOOSEST


def fill_until_eviction(fill: Callable[[int], None], limit: int) -> None:
    number, before = 0, 0
    while BUDGET.used_bytes >= before:
        before = BUDGET.used_bytes
        assert before <= limit
        fill(number)
        number += 1


def allocated_bytes() -> int:
    """By malloc, which RE2 uses."""
    fields = (ctypes.c_size_t * 10).from_buffer_copy(MALLINFO())
    arena_bytes, mapped_bytes = fields[7], fields[4]
    return arena_bytes + mapped_bytes


@cases(
    "pattern",
    of_a_number='"players%d":([0-9]+)',
    many_states="%d|[ab][ -~]{12}c",
    bytes=r"%d|[ab]\C{15}d",
    repeated="%d|.*(.{1,63}z)",
    classes="%d|[a-q][^u-z]{63}x",
    large="%d|(a|b|ab|ba)*(.{1,200})d",
)
def test_compiled_patterns_take_no_more_than_their_estimate(pattern: str, limit: int) -> None:
    """RE2 adds states while it matches."""
    generator = random.Random(1)
    texts = ["".join(generator.choices("abc -z", k=1000)) for _ in range(20)]
    before = allocated_bytes()
    number = 0
    while BUDGET.used_bytes < limit // 3:
        for text in texts:
            extract(text, pattern % number)
        number += 1
    kept = allocated_bytes() - before
    print_line(
        f"{number} patterns: {BUDGET.used_bytes:,} bytes by the estimate, {kept:,} in memory"
    )
    assert kept <= BUDGET.used_bytes


def test_an_entry_in_use_outlives_a_flood_of_others() -> None:
    budget = Budget(limit_bytes=100_000)
    made: list[str] = []

    def make(key: str) -> str:
        made.append(key)
        return key

    cache = Cache[str, str](lambda *_: 872, make, budget=budget)
    other = Cache[int, str](lambda *_: 872, str, budget=budget)
    for number in range(1000):
        assert cache["in use"] == "in use"
        assert other[number] == str(number)
    assert made == ["in use"]
    assert len(cache) + len(other) <= 50


def test_a_value_that_is_larger_than_an_eighth_of_the_budget_is_not_kept() -> None:
    budget = Budget(limit_bytes=8_000)
    cache = Cache[int, str](lambda *_: 1_000, str, budget=budget)
    assert cache[1] == "1"
    assert (cache, budget.used_bytes) == ({}, 0)
