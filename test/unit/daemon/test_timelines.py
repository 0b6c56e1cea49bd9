"""Timelines of one probe in a whole daemon: rows of (time, action, expected).

At its time, a row first compares what is expected, then acts. `ran` and `wrote` count the attempts that began and the
writes since the last row, `lists` the requested lists of containers in all.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from support.cases import cases
from support.scripted_node import (
    BAD,
    HUNG,
    OK,
    ScriptedNode,
    exec_probe,
    loop_time,
    one,
    pod_of,
    probe_of,
    spec_of,
)

from kruise_probe.api.core import ExecAction, GRPCAction, HTTPGetAction, Probe, TCPSocketAction
from kruise_probe.api.messages import MAX_MESSAGE_BYTES
from kruise_probe.daemon.cri.runtime import ContainerState
from kruise_probe.daemon.places import EXECS, SOCKETS, Places, Tenant
from kruise_probe.daemon.probers.prober import CouldNotProbe, ProbeResult, Reason

Action = Callable[[ScriptedNode], object]


class Expected(NamedTuple):
    """What is published; None is not compared. `state` "" means that nothing is published.

    `container` is that of the published state, `target` the address of the newest attempt or why there is none.
    """

    state: str | None = None
    message: str = ""
    ran: int | range | None = None
    wrote: int | None = None
    container: str | None = None
    target: str | None = None
    lists: int | None = None


Row = tuple[float, Action | None, Expected | None]


def start(**more: Any) -> Action:
    return lambda node: node.containers.start(**more)


def stop(node: ScriptedNode) -> None:
    node.containers.stop()


def away(node: ScriptedNode) -> None:
    node.containers.set_available(False)


def back(node: ScriptedNode) -> None:
    node.containers.set_available(True)


def lose(node: ScriptedNode) -> None:
    node.containers.stop(state=ContainerState.UNKNOWN, problem="no response")


def edit(probe: Probe | None = None, command: str = "check", **fields: int) -> Action:
    return lambda node: node.api.put(one(probe or exec_probe(command, **fields)))


def remove(node: ScriptedNode) -> None:
    node.api.put(spec_of())


def answer(result: ProbeResult | Exception, seconds: float = 0.0) -> Action:
    return lambda node: node.probers.answer(result, seconds=seconds)


def suspend(seconds: float) -> Action:
    """Suspend the node: its wall clock goes on, the loop's does not."""
    return lambda node: setattr(node, "suspended_seconds", seconds)


def stalled(always: bool) -> Action:
    """Every attempt from now on begins before the end of a stall of the daemon, or none does."""
    return lambda node: setattr(node, "stall_ended_at", math.inf if always else -math.inf)


def both(*actions: Action) -> Action:
    def act(node: ScriptedNode) -> None:
        for action in actions:
            action(node)

    return act


is_ = Expected


def blocked(reason: Reason = Reason.EXEC_IMPOSSIBLE, seconds: float = 0.0) -> Action:
    return answer(CouldNotProbe(reason, "that is why"), seconds)


def cannot(text: str) -> Action:
    """Block all attempts; the text is `<reason>: <detail>`."""
    reason, _, detail = text.partition(": ")
    return answer(CouldNotProbe(Reason(reason), detail))


def address(ip: str, probe: Probe | None = None) -> Action:
    """Write a probe that connects, of a pod with this address in the spec."""
    return lambda node: node.api.put(spec_of(pod_of(probe_of(probe or TCP), ip=ip)))


def is_cut(node: ScriptedNode) -> None:
    assert len(node.api.message()) == MAX_MESSAGE_BYTES


def occupy(node: ScriptedNode) -> None:
    """Take the only place of execs, and that of sockets, until `free`."""
    node.occupied = [places.request(OTHER, long=False) for places in (node.execs, node.sockets)]


def free(node: ScriptedNode) -> None:
    for places, place in zip((node.execs, node.sockets), node.occupied, strict=True):
        places.release(place)


def delete(node: ScriptedNode) -> None:
    node.api.remove()


OTHER = Tenant("other", "uid")
TCP, SLOW_TCP = (Probe(tcp_socket=TCPSocketAction(80), period_seconds=each) for each in (1, 300))
UP, DOWN, UNKNOWN = is_("Succeeded"), is_("Failed"), is_("Unknown")
SLOW: Any = {"period_seconds": 300}
NO_PORT = Probe(tcp_socket=TCPSocketAction(70_000))

LATE: dict[str, ProbeResult | Exception] = {
    "success": OK, "failure": BAD, "timeout": HUNG, "error": CouldNotProbe(Reason.EXEC_IMPOSSIBLE, "why"),
}  # fmt: skip

TIMELINES: dict[str, list[Row]] = {
    # When it runs.
    "b8-new-probe-of-a-running-container-runs-at-once": [
        (0, start(age=100), None), (7, edit(**SLOW), is_("", ran=0)), (7.2, None, is_("Succeeded", ran=1)),
    ],
    "b8-new-container-runs-at-its-initial-delay": [
        (0, edit(initial_delay_seconds=5, **SLOW), None), (10, start(age=0.9), None),
        (14, None, is_("", ran=0)), (14.2, None, is_("Succeeded", ran=1)),
    ],
    "b8-initial-delay-counts-from-the-start-of-the-container": [
        (0, both(edit(initial_delay_seconds=60, **SLOW), start(age=20)), None), (39.8, None, is_("", ran=0)), (40.3, None, is_("Succeeded", ran=1)),
    ],
    "start-in-the-future-counts-as-now": [
        (0, both(edit(initial_delay_seconds=5, **SLOW), start(age=-20)), None), (4.9, None, is_("", ran=0)), (5.2, None, is_("Succeeded", ran=1)),
    ],
    "longer-initial-delay-holds-probes-back": [
        (0, both(edit(), start()), None), (5, edit(initial_delay_seconds=60), UP),
        (59.9, None, is_("Succeeded", ran=0)), (60.2, None, is_(ran=1)),
    ],
    "shorter-initial-delay-starts-the-first-probe": [
        (0, both(edit(initial_delay_seconds=600, period_seconds=60), start()), None),
        (30, edit(initial_delay_seconds=10, period_seconds=60), is_("", ran=0)), (30.2, None, is_("Succeeded", ran=1)),
    ],
    "a-shorter-period-takes-effect-at-once": [
        (0, both(edit(**SLOW), start()), None), (3, edit(period_seconds=1), is_(ran=1)), (13, None, is_(ran=10)),
    ],
    "new-period-of-a-probe-that-ran-waits-for-its-phase": [
        (0, both(edit(**SLOW), start()), None), (3, edit(period_seconds=350), is_(ran=1)), (3.5, None, is_(ran=0)),
    ],
    "tcp-probe-that-times-out-keeps-its-period": [
        (0, both(edit(Probe(tcp_socket=TCPSocketAction(80))), answer(HUNG, 0.5), start()), None),
        (10.2, None, DOWN), (60.2, None, is_(ran=50)),
    ],
    "b3-execs-that-hang-run-less-often-until-one-succeeds": [
        (0, both(edit(period_seconds=2), answer(HUNG, 1.5), start()), None),
        (2, None, is_("Failed", "timed out")), (60, None, is_("Failed", "timed out (ExecStuck: the command times out every time; it now runs every 16 s; make")),
        (124, answer(OK), is_("Failed", ran=4)), (140.5, None, is_("Succeeded", "ok")), (160.5, None, is_(ran=10)),
    ],
    "b3-new-container-has-the-period-of-the-spec-again": [
        (0, both(edit(period_seconds=2), answer(HUNG, 1.5), start()), None),
        (100, start(), is_("Failed")), (105, None, is_(ran=2)),
    ],
    "b3-new-handler-has-the-period-of-the-spec-again": [
        (0, both(edit(period_seconds=2), answer(HUNG, 1.5), start()), None),
        (100, edit(command="new", period_seconds=2), DOWN), (105, None, is_(ran=2)),
    ],
    "b3-removed-probe-that-ran-less-often-does-not-run-again": [
        (0, both(edit(period_seconds=2), answer(HUNG, 1.5), start()), None), (100, remove, DOWN), (102, None, None), (160, None, is_("", ran=0)),
    ],
    "b3-exec-that-hangs-longer-than-its-stretched-period-rests-between-attempts": [
        (0, both(edit(period_seconds=10, timeout_seconds=81), answer(HUNG, 82), start()), None), (540, None, DOWN), (1500, None, is_(ran=6)),
    ],
    "probe-slower-than-its-period-skips-ticks": [
        (0, both(edit(), answer(OK, 2.7), start()), None), (30, None, None), (330, None, is_(ran=100)),
    ],
    "program-that-does-not-exist-keeps-its-period": [
        (0, both(edit(), answer(HUNG, 0.9), start()), None), (9, blocked(), DOWN),
        (20, None, None), (30, None, is_(ran=10)), (60, None, is_("Unknown", "ExecImpossible: ")),
    ],
    "suspend-just-over-the-period-runs-at-once": [
        (0, both(edit(**SLOW), start()), None), (3, suspend(301), is_(ran=1)), (4.5, None, is_(ran=1)),
    ],
    "shorter-suspend-changes-nothing": [
        (0, both(edit(**SLOW), start()), None), (3, suspend(299), is_(ran=1)), (4.5, None, is_(ran=0)),
    ],
    "clock-that-is-set-back-changes-nothing": [
        (0, both(edit(**SLOW), start()), None), (3, suspend(-3600), is_(ran=1)), (4.5, None, is_(ran=0)),
    ],
    "timeout-during-a-stall-is-ignored-once": [
        (0, both(edit(period_seconds=20, failure_threshold=2), answer(HUNG, 1), stalled(True), start()), None), (60, None, is_("", ran=3)), (80, None, is_("Failed", ran=1)),
    ],
    "timeout-after-an-ignored-one-counts": [
        (0, both(edit(period_seconds=20), answer(HUNG, 1), stalled(True), start()), None), (5, stalled(False), is_("", ran=1)), (40, None, is_("Failed", ran=range(1, 3))),
    ],
    "failure-during-a-stall-counts": [(0, both(edit(period_seconds=20), answer(BAD, 1), stalled(True), start()), None), (5, None, is_("Failed", ran=1))],
    "a-probe-that-ends-just-after-a-tick-runs-again-at-once": [
        (0, both(edit(), answer(BAD, 1.001), start()), None), (100, None, is_(ran=range(98, 101))),
    ],
    **{
        f"attempt-that-waits-too-long-is-unknown-until-it-runs-{reason}": [
            (0, both(edit(probe), start()), None), (1, occupy, UP), (30, None, is_("Succeeded", ran=0)), (34, None, is_("Unknown", f"{reason}: no place to run the ")),
            (54, free, is_("Unknown", wrote=0)), (56, None, UP),
        ]
        for probe, reason in ((exec_probe(), "ExecQueued"), (TCP, "AttemptQueued"))
    },
    **{
        f"edited-probe-is-unknown-when-it-was-queued-for-its-new-limit-{name}": [
            (0, both(occupy, edit(period_seconds=before), start()), None), (20, after, is_("")),
            (limit - 1, None, is_("")), (limit + period + 1, None, is_("Unknown", "ExecQueued: ")),
        ]
        for name, before, after, limit, period in (
            ("threshold", 1, edit(failure_threshold=5), 30, 1), ("initial-delay", 1, edit(initial_delay_seconds=5), 30, 1),
            ("shorter-period", 60, edit(period_seconds=1), 30, 1), ("longer-period", 1, edit(period_seconds=20), 60, 20),
        )
    },
    "container-that-stops-hides-exec-queued": [
        (0, both(edit(), start()), None), (1, occupy, UP), (10, stop, UP), (70, None, is_("Unknown", "ContainerNotRunning: ")),
    ],
    "unavailable-runtime-hides-exec-queued": [(0, both(edit(), start()), None), (1, occupy, UP), (10, away, UP), (70, None, UP)],
    # Of an attempt that ends later than its container.
    **{
        f"{name}-after-the-exit-of-the-container-does-not-count": [
            (0, both(edit(period_seconds=20), start()), None), (3, answer(late, 19), is_("Succeeded", ran=1)), (29, stop, is_("Succeeded", ran=1)),
            (58, None, is_("Succeeded", ran=0)), (60, None, is_("Unknown", "ContainerNotRunning: ")), (3600, None, is_("Unknown", "ContainerNotRunning: ", ran=0)),
        ]
        for name, late in LATE.items()
    },
    "result-while-the-runtime-is-unavailable-does-not-count": [
        (0, both(edit(period_seconds=20), start()), None), (3, answer(BAD, 19), is_(ran=1)), (29, away, is_("Succeeded", ran=1)), (50, both(answer(OK), back), UP), (80, None, UP),
    ],
    "edits-do-not-restart-the-grace-period-of-a-container-that-does-not-run": [
        (0, both(edit(), start()), None), (5, stop, UP), (20, edit(command="new"), UP), (36, None, is_("Unknown", "ContainerNotRunning: ")),
    ],
    # Where it goes.
    **{
        f"probe-goes-to-the-pods-own-address-{name}": [(0, both(address(ip), start(ips=ips)), None), (1, None, is_(target=dialled))]
        for name, ip, ips, dialled in (
            ("as-the-spec-says", "127.0.0.9", ("127.0.0.9",), "127.0.0.9"), ("one-of-several", "127.0.0.9", ("127.0.0.8", "127.0.0.9"), "127.0.0.9"),
            ("a9-a10-never-elsewhere", "127.0.0.7", ("127.0.0.9",), "127.0.0.9"), ("spec-has-none-yet", "", ("127.0.0.9",), "127.0.0.9"),
            ("neither-has-one", "", (), ""), ("e10-not-a-pod-network-without-one", "10.0.0.1", (), "the runtime reports no address of the pod's sandbox, so 10.0.0.1 is not"),
        )
    },
    "e10-pod-in-the-hosts-network-is-probed-at-an-address-of-the-node": [
        (0, both(address("10.0.0.2"), start(ips=(), host_network=True)), None), (2, address("10.0.0.1"), is_(target="10.0.0.2 is not an address of this node")),
        (4, None, is_(target="10.0.0.1")),
    ],
    "e10-command-runs-whatever-the-address-is": [
        (0, both(address("10.0.0.2", exec_probe()), start(ips=(), host_network=True)), None), (1, None, is_("Succeeded", ran=1)),
    ],
    "address-that-becomes-known-is-probed-at-once": [
        (0, both(blocked(Reason.POD_IP_UNKNOWN), address("", SLOW_TCP), start(ips=(), host_network=True)), None),
        (5, both(answer(OK), address("10.0.0.1", SLOW_TCP)), is_("Unknown", ran=1)), (5.2, None, is_("Succeeded", ran=1, target="10.0.0.1")),
    ],
    "new-address-of-a-probe-that-is-not-blocked-waits-for-its-next-tick": [
        (0, both(address("127.0.0.9", SLOW_TCP), start(ips=("127.0.0.9", "127.0.0.8"))), None), (3, address("127.0.0.8", SLOW_TCP), is_(ran=1)),
        (103, None, is_(ran=0)), (503, None, is_(target="127.0.0.8")),
    ],
    # Containers.
    "a24-container-that-does-not-run-is-never-probed": [
        (0, both(edit(), start()), None), (5.5, stop, UP), (34, None, is_("Succeeded", ran=0)),
        (37, None, is_("Unknown", "ContainerNotRunning: container main is Exited", ran=0)),
    ],
    "text-of-the-runtime-is-cut-and-without-control-characters": [
        (0, both(edit(), start(), lambda node: node.containers.stop(state=ContainerState.UNKNOWN, problem="\x1b[31m" + "x" * 5_000)), None),
        (37, is_cut, is_("Unknown", "ContainerNotRunning: container main is Unknown: xxxx")),
    ],
    "container-without-a-status-is-unknown-with-the-reason": [
        (0, both(edit(), start()), None), (5, lose, UP),
        (37, None, is_("Unknown", "ContainerNotRunning: container main is Unknown: no response")),
    ],
    "a14-container-that-is-not-created-becomes-unknown": [
        (0, edit(period_seconds=20, failure_threshold=3), None), (59, None, is_("")),
        (61, None, is_("Unknown", "ContainerNotCreated: the runtime has no container main of pod default/pod")),
    ],
    "shorter-grace-period-applies-to-a-blocked-probe": [
        (0, edit(**SLOW), None), (10, edit(period_seconds=1), None), (29, None, is_("")), (31, None, UNKNOWN),
    ],
    "grace-period-that-has-ended-applies-at-once": [
        (0, edit(**SLOW), None), (100, edit(period_seconds=1), is_("")), (100.2, None, UNKNOWN),
    ],
    "new-container-keeps-the-state-until-its-threshold": [
        (0, both(edit(failure_threshold=3), start()), None), (5, answer(BAD), UP),
        (6.7, start(), UP), (8.1, None, UP), (9.6, None, DOWN),
    ],
    "new-container-with-an-initial-delay-is-unknown-at-once": [
        (0, both(edit(initial_delay_seconds=10), start(age=100)), None), (3, start(), UP),
        (3.2, None, is_("Unknown", "ContainerRestarted: ", ran=0)), (13.3, None, UP),
    ],
    **{
        f"tick-during-an-attempt-does-not-probe-the-next-container-early-{at}": [
            (0, both(edit(initial_delay_seconds=60, period_seconds=4), answer(OK, 40), start(age=100)), None), (at, both(answer(OK), start()), is_("", ran=1)),
            (at + 59, None, is_("", ran=0)), (at + 61, None, is_("Succeeded", ran=1)),
        ]
        for at in (20, 22)  # one of them is in the first half of a period
    },
    "result-of-the-old-container-does-not-count": [
        (0, both(edit(period_seconds=5), answer(BAD, 3), start()), None),
        (2, both(answer(OK), start()), is_("", ran=1)), (2.2, None, is_("Succeeded", ran=1)), (20, None, UP),
    ],
    "container-that-reappears-is-not-new": [
        (0, both(edit(initial_delay_seconds=5, period_seconds=60), start(id="c1", age=10)), None), (1, stop, UP),
        (20, start(id="c1", age=31), UP), (200, None, UP),
    ],
    "short-absence-does-not-count-for-the-grace-period": [
        (0, both(edit(**SLOW), start(id="c1")), None), (1, stop, UP),
        (2, both(start(id="c1", age=2), blocked()), UP), (449, None, UP),
    ],
    "state-that-is-kept-is-of-the-old-container-until-the-new-one-confirms-it": [
        (0, both(edit(period_seconds=10, success_threshold=2, failure_threshold=5), start()), None), (25, both(answer(BAD), start()), is_(container="container-1")),
        (40, answer(OK), UP), (50, None, is_("Succeeded", container="container-1")), (70, None, is_("Succeeded", container="container-2")),
    ],
    # The runtime.
    "unavailable-runtime-stops-probes-and-keeps-states": [
        (0, both(edit(), start()), None), (5, away, UP), (184, back, is_("Succeeded", ran=0)), (189, None, is_("Succeeded", ran=5)),
    ],
    "runtime-unavailable-for-three-minutes-is-unknown": [
        (0, both(edit(), start()), None), (5, both(stop, away), UP), (184, edit(command="new"), UP), (186, None, is_("Unknown", "RuntimeUnavailable: unavailable", ran=0)),
        (300, start(), is_("Unknown", wrote=0)), (301, back, UNKNOWN), (310, None, UP),
    ],
    "runtime-unavailable-from-the-start-is-unknown": [(0, both(away, edit()), None), (179, None, is_("")), (181, None, is_("Unknown", "RuntimeUnavailable: "))],
    "grace-period-does-not-run-while-the-runtime-is-unavailable": [
        (0, both(edit(), start()), None), (5, stop, UP), (15, away, UP), (115, back, UP), (134, None, UP), (136, None, is_("Unknown", "ContainerNotRunning: ")),
    ],
    "runtime-unavailable-during-an-attempt-holds-the-state": [
        (0, both(edit(period_seconds=5), start()), None), (6, blocked(Reason.RUNTIME_UNAVAILABLE, 2), UP),
        (12, away, UP), (100, None, UP),
    ],
    # What cannot be probed.
    **{
        f"a41-blocked-probe-is-unknown-after-the-grace-period-{reason}": [
            (0, both(edit(period_seconds=5), start()), None), (20, blocked(reason), UP), (49, None, UP),
            (59, answer(BAD), is_("Unknown", f"{reason}: that is why", lists=lists)), (64, None, DOWN),
        ]
        # One more list if the runtime contradicts its list, as with a container whose shim has died.
        for reason, lists in {
            Reason.EXEC_IMPOSSIBLE: 0, Reason.PORT_NAME_UNKNOWN: 0, Reason.RUNTIME_UNAVAILABLE: 1,
            Reason.CONTAINER_NOT_CREATED: 1, Reason.CONTAINER_NOT_RUNNING: 1,
        }.items()
    },
    "container-that-runs-on-does-not-end-the-grace-period-of-its-attempts": [
        (0, both(edit(period_seconds=5), start(id="c1")), None), (20, blocked(), UP), (45, start(id="c1", age=45), UP), (56, None, is_("Unknown", "ExecImpossible: ")),
    ],
    "first-text-of-a-reason-stays-while-attempts-are-blocked": [
        (0, both(cannot("ExecImpossible: id 1"), edit(period_seconds=5), start()), None), (1, cannot("ExecImpossible: id 2"), is_("Unknown", "ExecImpossible: id 1")),
        (11, cannot("PortNameUnknown: id 3"), is_("Unknown", "ExecImpossible: id 1")), (21, cannot("ExecImpossible: id 4"), is_("Unknown", "PortNameUnknown: id 3")),
        (31, edit(command="new", period_seconds=5), is_("Unknown", "ExecImpossible: id 4")), (32, None, is_("Unknown", "ExecImpossible: id 4")),
        (33, both(cannot("ExecImpossible: id 5"), edit(command="newer", period_seconds=5)), None), (34, None, is_("Unknown", "ExecImpossible: id 5")),
    ],
    "program-that-does-not-exist-is-unknown-at-once": [
        (0, both(blocked(), edit(failure_threshold=9, **SLOW), start()), None),
        (0.3, None, is_("Unknown", "ExecImpossible: that is why", ran=1)),
    ],
    "invalid-probe-of-the-prober-is-unknown-at-once": [
        (0, both(edit(**SLOW), start()), None), (5, both(blocked(Reason.INVALID_PROBE), edit(command="new", **SLOW)), UP),
        (5.3, None, is_("Unknown", "InvalidProbe: that is why")),
    ],
    **{
        f"invalid-probe-is-unknown-at-once-{name}": [
            (0, both(edit(probe), start()), None), (0.5, None, is_("Unknown", "InvalidProbe: ", ran=0)),
            (60, edit(), is_(ran=0)), (61.5, None, UP),
        ]
        for name, probe in {
            "no-handler": Probe(), "several": Probe(exec=ExecAction(("a",)), grpc=GRPCAction(1)), "no-port": NO_PORT,
            "empty-command": Probe(exec=ExecAction(())), "scheme": Probe(http_get=HTTPGetAction(80, scheme="FTP")),
        }.items()
    },
    **{
        f"probe-that-can-run-is-not-invalid-{name}": [(0, both(edit(probe), start()), None), (1.5, None, UP)]
        for name, probe in {
            "numbers-out-of-range": exec_probe(period_seconds=-5, timeout_seconds=-1),
            "longer-than-our-bounds": Probe(exec=ExecAction(("true",) * 500)),
            "host-that-its-prober-refuses": Probe(tcp_socket=TCPSocketAction(80, host="127.0.0.1")),
            "name-of-no-port": Probe(tcp_socket=TCPSocketAction("No_Name")),
        }.items()
    },
    "probe-that-becomes-invalid-stops": [
        (0, both(edit(), answer(OK, 0.5), start()), None), (5.3, edit(NO_PORT), UP),
        (5.5, start(), is_("Unknown", "InvalidProbe: ")), (60, stop, is_("Unknown", "InvalidProbe: ", ran=0)),
        (120, None, is_("Unknown", "InvalidProbe: ", ran=0)),
    ],
    "probe-that-becomes-valid-again-runs-in-its-container": [
        (0, both(edit(**SLOW), start()), None), (5, edit(NO_PORT), UP), (10, edit(**SLOW), UNKNOWN),
        (10.3, None, is_("Succeeded", ran=1, container="container-1")),
    ],
    "probe-that-becomes-valid-again-runs-in-a-container-that-came-meanwhile": [
        (0, both(edit(**SLOW), start()), None), (5, edit(NO_PORT), UP), (7, start(), None), (10, edit(**SLOW), UNKNOWN),
        (10.3, None, is_("Succeeded", ran=1, container="container-2")),
    ],
    # Edits.
    "a23-late-result-of-the-old-handler-is-dropped": [
        (0, both(edit(command="old", **SLOW), answer(BAD, 20), start()), None),
        (3, both(answer(OK), edit(command="new", **SLOW)), is_("", ran=1)), (3.2, None, is_("Succeeded", ran=1)), (60, None, UP),
    ],
    "new-handler-keeps-the-state-until-its-own-threshold": [
        (0, both(edit(command="old", failure_threshold=3), start()), None), (5, answer(BAD), UP),
        (6.9, edit(command="new", failure_threshold=3), UP), (8.4, None, UP), (10, None, DOWN),
    ],
    "new-handler-waits-for-the-initial-delay": [
        (0, both(edit(command="old", initial_delay_seconds=60, **SLOW), start()), None),
        (10, edit(command="new", initial_delay_seconds=60, **SLOW), None), (59.9, None, is_(ran=0)), (60.2, None, is_(ran=1)),
    ],
    # The place that an attempt has taken, or waits for, is of its kind of handler.
    **{
        f"other-kind-of-handler-gives-the-places-back-{name}": [
            (0, both(edit(old), answer(OK, 20), start()), None), (3, both(answer(OK), edit(new)), is_("", ran=1)), (5, edit(old), UP), (10, None, is_("Succeeded", ran=range(5, 8))),
        ]
        for name, old, new in (("exec-to-tcp", exec_probe(), TCP), ("tcp-to-exec", TCP, exec_probe()))
    },
    "other-kind-of-handler-of-a-probe-that-waits-for-a-place": [
        (0, both(edit(), occupy, start()), None), (5, edit(TCP), is_("", ran=0)), (10, free, is_("", ran=0)), (12, None, UP),
    ],
    "an-attempt-that-was-waiting-before-the-edit-is-not-reported": [
        (0, both(occupy, edit(period_seconds=60), start()), None), (50, edit(TCP), is_("")), (51, free, is_("")), (53, None, is_("Succeeded", wrote=1)),
    ],
    "new-timeout-restarts-the-attempt-in-flight": [
        (0, both(edit(timeout_seconds=30, **SLOW), answer(BAD, 20), start()), None),
        (3, both(answer(OK), edit(timeout_seconds=5, **SLOW)), is_(ran=1)), (3.2, None, is_("Succeeded", ran=1)), (30, None, UP),
    ],
    "new-timeout-of-an-idle-probe-starts-an-attempt": [
        (0, both(edit(timeout_seconds=10, **SLOW), start()), None), (3, edit(timeout_seconds=5, **SLOW), is_(ran=1)), (4, None, is_(ran=1)),
    ],
    "new-period-keeps-the-attempt-in-flight": [
        (0, both(edit(**SLOW), answer(OK, 5), start()), None), (1, edit(period_seconds=2), is_("", ran=1)), (5.2, None, UP),
    ],
    "new-thresholds-of-a-blocked-probe-start-no-attempt": [
        (0, both(edit(**SLOW), blocked(), start()), None), (3, edit(failure_threshold=2, **SLOW), is_(ran=1)), (13, None, is_(ran=0)),
    ],
    "new-thresholds-apply-to-running-counters-at-once": [
        (0, both(edit(period_seconds=10, failure_threshold=5), start()), None), (25, answer(BAD), UP),
        (50, edit(period_seconds=10, failure_threshold=2), UP), (50.2, None, DOWN),
    ],
    "removed-probe-runs-no-more-until-it-is-named-again": [
        (0, both(edit(), answer(OK, 20), start()), None), (3.4, remove, is_(ran=1)), (9, both(answer(OK), edit()), is_("", ran=0)),
        (9.3, None, is_("Succeeded", ran=1)),
    ],
    "success-threshold-written-out-as-its-default-is-no-edit": [
        (0, both(edit(**SLOW), start()), None), (3, edit(success_threshold=0, timeout_seconds=1, **SLOW), is_(ran=1)), (9, None, is_("Succeeded", ran=0)),
    ],
    "success-threshold-that-falls-applies-at-once": [
        (0, both(edit(period_seconds=10, success_threshold=5), answer(BAD), start()), None), (25, answer(OK), DOWN),
        (50, edit(period_seconds=10, success_threshold=2), DOWN), (50.2, None, UP),
    ],
    "removed-probe-that-was-blocked-publishes-nothing": [
        (0, both(edit(period_seconds=5), start()), None), (20, blocked(), UP), (40, remove, UP), (43, None, is_("")), (100, None, is_("", ran=0)),
    ],
    # The object is deleted by hand, and the manager recreates it.
    **{
        f"recreated-object-gets-its-states-at-once-after-{after}": [
            (0, both(edit(period_seconds=20), answer(BAD), start(age=100)), None), (50, delete, DOWN), (50 + after, edit(period_seconds=20), is_(ran=range(1 + int(after)))),
            (50.01 + after, None, is_("Failed", ran=0)), (100 + after, None, is_("Failed", ran=range(2, 4))),
        ]
        for after in (0.001, 0.5, 30.0)
    },
    "object-that-is-recreated-late-is-new": [
        (0, both(edit(period_seconds=20), start(age=100)), None), (5, both(answer(BAD, 0.5), delete), UP), (66, edit(period_seconds=20), None),
        (66.4, None, is_("", ran=1)), (66.7, None, DOWN),
    ],
    "change-while-the-object-was-deleted-is-published": [
        (0, both(edit(initial_delay_seconds=5), start(age=100)), None), (5, both(delete, start()), UP), (5.5, edit(initial_delay_seconds=5), None),
        (5.7, None, is_("Unknown", "ContainerRestarted: ")),
    ],
}  # fmt: skip


@cases("rows", **TIMELINES)
async def test_timeline_of_a_probe(rows: list[Row]) -> None:
    node = ScriptedNode()
    node.execs, node.sockets = Places(1, EXECS), Places(1, SOCKETS)
    node.api.put(spec_of())
    async with node.daemon():
        began, seen, written = loop_time(), 0, 0
        for at, action, expected in rows:
            await asyncio.sleep(began + at - loop_time())
            ran, seen = len(node.probers.attempts) - seen, len(node.probers.attempts)
            wrote, written = len(node.api.writes) - written, len(node.api.writes)
            if expected is not None:
                assert expected.state is None or expected.state == (node.api.state() or ""), at
                assert not expected.message or node.api.message().startswith(expected.message), at
                if expected.ran is not None:
                    assert ran in (
                        expected.ran if isinstance(expected.ran, range) else [expected.ran]
                    ), at
                assert expected.wrote in (None, wrote), at
                assert expected.lists in (None, node.containers.refreshes), at
                if expected.container is not None:
                    assert (
                        node.api.states()["pod/marker#probe"].container_id == expected.container
                    ), at
                if expected.target is not None:
                    target = node.probers.attempts[-1].target
                    assert (target.pod_ip or target.refusal).startswith(expected.target), at
                    assert bool(target.pod_ip or target.refusal) == bool(expected.target), at
            if action is not None:
                action(node)
        changes = _changes(node)
    assert len(node.recorder.events) == len(changes), "one event for each transition"
    assert len({each.last_transition_time for each in changes}) == len(changes)
    assert node.probers.most_in_flight <= 1


def _changes(node: ScriptedNode) -> list[Any]:
    """The published results whose state differs from the one before."""
    states = [
        state
        for write in node.api.writes
        for pod in write.status.pod_probe_statuses or ()
        for state in pod.probe_states or ()
    ]
    return [
        now for before, now in zip([None, *states], states, strict=False)
        if before is None or before.state != now.state
    ]  # fmt: skip
