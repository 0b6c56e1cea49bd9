"""How fast this machine is right now, so that figures of different machines and hours compare as ratios."""

import time

import msgspec

from benchmarks.reporting import Row, interpreter

_LOOPS = 2_000_000


def speed() -> Row:
    """Interpreter and JSON speed on one processor; `busy` is the share of it that others took meanwhile."""
    wall, cpu = time.perf_counter(), time.process_time()
    total = 0
    for number in range(_LOOPS):
        total += number & 7
    loop_ns = (time.process_time() - cpu) / _LOOPS * 1e9
    document = msgspec.json.encode({f"key-{n}": ["value"] * 8 for n in range(400)})
    decoding = time.process_time()
    for _ in range(200):
        msgspec.json.decode(document)
    decode_mb = len(document) * 200 / (time.process_time() - decoding) / 1e6
    busy = 1 - (time.process_time() - cpu) / (time.perf_counter() - wall)
    return {
        "benchmark": "machine",
        "python": interpreter(),
        "python_loop_ns": round(loop_ns, 1),
        "json_mb_per_second": round(decode_mb),
        "taken_by_others": round(max(busy, 0.0), 2),
    }
