"""The bytes of all caches that a tenant can fill: their estimates against the real memory, and their common bound."""

import ctypes
import gc
import random
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import msgspec
import pytest
from support.builders import (
    container_wire,
    marker,
    npp_wire,
    owned_fields,
    pod,
    policy_wire,
    probe_wire,
)
from support.cases import cases
from support.output import print_line
from support.wire import Json

from kruise_probe.api.caches import BUDGET, Budget, Cache
from kruise_probe.api.extraction import extract
from kruise_probe.api.pods import Pod
from kruise_probe.api.resources import NODE_POD_PROBES
from kruise_probe.controllers.claims import claims_of
from kruise_probe.controllers.compiled import CompiledMarker, compile_marker
from kruise_probe.controllers.plan import probes_of_marker

LIMIT_BYTES = 3 << 20
LOOSEST = 8
"""An estimate may be this many times too large. Most are twice the memory."""


_FIELDS = [
    "arena",
    "ordblks",
    "smblks",
    "hblks",
    "hblkhd",
    "usmblks",
    "fsmblks",
    "uordblks",
    "fordblks",
    "keepcost",
]
MALLINFO = ctypes.CDLL(None).mallinfo2
MALLINFO.restype = type(
    "mallinfo2",
    (ctypes.Structure,),
    {"_fields_": [(field, ctypes.c_size_t) for field in _FIELDS]},
)


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    _empty()
    monkeypatch.setattr(BUDGET, "limit_bytes", LIMIT_BYTES)
    yield LIMIT_BYTES
    _empty()


def _empty() -> None:
    BUDGET.age()
    BUDGET.age()


def names(number: int, length: int) -> list[str]:
    """Short strings of which none is in another list."""
    return [f"{number:x}.{position:x}" for position in range(length)]


def compiled(**probe: Any) -> CompiledMarker:
    return compile_marker(marker(probes=[probe_wire(**probe)]))


def labels_renamed(number: int) -> None:
    pod(labels=dict.fromkeys(names(number, 30), f"v{number}"))


def annotations_of_completed_pods(number: int) -> None:
    pod(annotations={name: name + "\U0001f600" for name in names(number, 12)})


def pods_with_1000_named_ports(number: int) -> Pod:
    ports = dict.fromkeys(names(number, 1000), 30_000)
    return pod(containers=[container_wire(ports=ports)])


def started_containers(number: int) -> None:
    pod(started=names(number, 60))


def fields_of_managers(number: int) -> None:
    fields = owned_fields(
        labels=names(number, 100),
        conditions=names(number, 30),
    )
    pod(owned=fields)


def selectors(number: int) -> None:
    values = names(number, 32)
    expressions = [{"key": key, "operator": "In", "values": values} for key in values]
    compile_marker(marker(selector={"matchExpressions": expressions}))


def claims_with_short_keys(number: int) -> None:
    labels = dict.fromkeys(names(number, 100), f"v{number}")
    claims_of((compiled(policies=[policy_wire(labels=labels)]),))


def claims_with_wide_values(number: int) -> None:
    policy = policy_wire(
        annotations=dict.fromkeys(
            names(number, 32),
            f"\U0001f600{number}" + "x" * 500,
        ),
        from_message=[
            {"annotation": f"m{name}", "regex": f"(?:a|b|c|d|{name})+"} for name in names(number, 8)
        ],
    )
    claims_of((compiled(policies=[policy]),))


def entries_of_deleted_pods(number: int) -> None:
    deleted = pods_with_1000_named_ports(number)
    probes_of_marker(compiled(), deleted.containers, deleted.started)


def long_command(number: int) -> Json:
    return {"exec": {"command": names(number, 1000)}}


def commands_of_short_arguments(number: int) -> None:
    probed = pod()
    edited = compiled(handler=long_command(number))
    assert probes_of_marker(edited, probed.containers, probed.started)


def probes_of_a_node(number: int) -> None:
    probe = {
        "name": "web#healthy",
        "containerName": "main",
        "probe": long_command(number),
    }
    entry = {
        "name": "web-0",
        "namespace": "default",
        "uid": "u",
        "IP": "",
        "probes": [probe],
    }
    wire = npp_wire(entries=[entry])
    NODE_POD_PROBES.decode(msgspec.json.encode(wire))


def hashes_with_ports(number: int) -> None:
    (probe,) = compiled(handler={"tcpSocket": {"port": "http"}}).probes
    probed = pod(containers=[container_wire(ports={"http": number})])
    probe.hash_on(probed)


def traced_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.parametrize(
    "fill",
    [
        labels_renamed,
        annotations_of_completed_pods,
        pods_with_1000_named_ports,
        started_containers,
        fields_of_managers,
        selectors,
        claims_with_short_keys,
        claims_with_wide_values,
        entries_of_deleted_pods,
        commands_of_short_arguments,
        probes_of_a_node,
        hashes_with_ports,
    ],
)
def test_what_a_tenant_can_grow_takes_no_more_than_the_budget(
    fill: Callable[[int], object], limit: int
) -> None:
    tracemalloc.start()
    try:
        fill_until_eviction(fill, limit)
        used = BUDGET.used_bytes
        with_caches = traced_bytes()
        _empty()
        kept = with_caches - traced_bytes()
    finally:
        tracemalloc.stop()
    print_line(f"{used:,} bytes by the estimate, {kept:,} in memory")
    assert kept <= used
    assert kept >= used // LOOSEST


def fill_until_eviction(fill: Callable[[int], object], limit: int) -> None:
    before = 0
    for number in count():
        if BUDGET.used_bytes < before:
            return
        before = BUDGET.used_bytes
        assert before <= limit
        fill(number)


def allocated_bytes() -> int:
    """By malloc, which RE2 uses."""
    found = MALLINFO()
    arena_bytes: int = found.uordblks
    mapped_bytes: int = found.hblkhd
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
    used = BUDGET.used_bytes
    print_line(f"{number} patterns: {used:,} bytes by the estimate, {kept:,} in memory")
    assert kept <= used


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
