"""The kubelet's own probers, built from its source: their verdicts and requests are those that our unit tests expect."""

import asyncio
import json
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
import grpc.aio
import pytest
from contract.probers.real_kubelet import BUILD_SECONDS, Kubelet
from grpc_health.v1._async import HealthServicer
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from support.cases import cases
from support.probe_rows import (
    LATE_SECONDS,
    MATCHED,
    ROWS,
    VERDICTS_FILE,
    probe_of,
    server_of,
    verdict,
    verdicts,
)
from support.scripted_server import serving
from support.wire import Json

from kruise_probe.api.probe import GRPCAction
from kruise_probe.daemon.probers.grpc import GrpcProber
from kruise_probe.daemon.probers.prober import Target

pytestmark = pytest.mark.timeout(BUILD_SECONDS)
"""The first test here waits for the build."""


RECORD = "KRUISE_PROBE_RECORD_VERDICTS"
"""With this variable, the verdicts are written to the file."""


@pytest.mark.parametrize("name", ROWS)
async def test_the_verdicts_and_requests_of_the_file_are_the_kubelets(
    kubelet: Kubelet, name: str
) -> None:
    row = ROWS[name]
    host = row.get("host", "127.0.0.1")
    async with serving(server_of(row), host=host) as server:
        probe = probe_of(row, server)
        theirs = await asyncio.to_thread(
            kubelet.probe,
            host,
            probe,
            row.get("timeout", 30.0),
        )
        found = verdict(theirs["result"], theirs["message"], server)

    if RECORD in os.environ:
        newest = {**verdicts(), name: found}
        lines = [json.dumps({"row": row, **recorded}) + "\n" for row, recorded in newest.items()]
        VERDICTS_FILE.write_text("".join(lines))
    assert found == verdicts()[name]


class Health(HealthServicer):  # type: ignore[misc]  # no stubs
    """Answers from its table; `act` comes first."""

    def __init__(self, act: Callable[[Any], Any] | None = None) -> None:
        super().__init__()
        self._act = act

    async def Check(self, request: Any, context: Any) -> Any:
        if self._act:
            await self._act(context)
        return await super().Check(request, context)


async def refuse(context: Any) -> None:
    await context.abort(grpc.StatusCode.PERMISSION_DENIED, "größer als 100%")


async def dawdle(_: Any) -> None:
    await asyncio.sleep(30)


SLOW = partial(Health, dawdle)


@cases(
    "servicer service",
    no_service=(Health, None),
    empty_service=(Health, ""),
    serving=(Health, "up"),
    not_serving=(Health, "down"),
    unknown=(Health, "unclear"),
    no_such_service=(Health, "nobody/knows"),
    unimplemented=(None, None),
    refused=(partial(Health, refuse), None),
    slow=(SLOW, None),
)
async def test_a15_grpc_verdicts_equal_the_kubelets(
    kubelet: Kubelet, servicer: Callable[[], Health] | None, service: str | None
) -> None:
    server = grpc.aio.server()
    if servicer:
        table = servicer()
        add_HealthServicer_to_server(table, server)
        for name, status in (("", 1), ("up", 1), ("down", 2), ("unclear", 0)):
            await table.set(name, status)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        wire: Json = {"port": port}
        if service is not None:
            wire["service"] = service
        timeout = LATE_SECONDS if servicer is SLOW else 30.0
        theirs = await asyncio.to_thread(
            kubelet.probe,
            "127.0.0.1",
            {"grpc": wire},
            timeout,
        )
        action = GRPCAction(port=port, service=service)
        prober = GrpcProber(action, timeout_seconds=timeout, user_agent="kube-probe/.")
        ours = await prober.run(Target("127.0.0.1", ""))
    finally:
        await server.stop(grace=None)

    assert ("success" if ours.succeeded else "failure") == theirs["result"]
    if any(text in theirs["message"] for text in MATCHED):
        assert ours.message == theirs["message"]
