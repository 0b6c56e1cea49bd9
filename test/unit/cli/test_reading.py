"""How commands list objects: all pages, and kinds that the user may not list."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.builders import marker_wire
from support.cases import cases
from support.scripted_http import Act, Received, ScriptedHttpServer, answer, refusal

from kruise_probe.api.resources import MARKERS
from kruise_probe.cli.query import client_of
from kruise_probe.cli.reading import Reader
from kruise_probe.client.config import ClusterConfig

pytestmark = pytest.mark.sockets


def page(*items: Any, token: str = "") -> Act:
    meta = {"resourceVersion": "7", "continue": token}
    body = {"kind": "PodProbeMarkerList", "metadata": meta, "items": list(items)}
    return answer(200, body)


@asynccontextmanager
async def reader_of(script: list[Act]) -> AsyncIterator[Reader]:
    """A reader of a server that runs the script."""
    async with (
        ScriptedHttpServer(script).running() as server,
        client_of(ClusterConfig(server=server.url)) as client,
    ):
        yield Reader(client, namespace="a", system_namespace="kruise-system")


async def test_ages_are_judged_by_the_clock_of_the_server() -> None:
    dates = {"Date": "Fri, 09 Sep 2022 07:13:04 GMT"}
    crd = answer(404, {"kind": "Status", "code": 404}, **dates)
    lists = {}
    for kind in ("PodProbeMarker", "Pod", "Node", "NodePodProbe", "Lease"):
        body = {"kind": f"{kind}List", "metadata": {"resourceVersion": "7"}}
        lists[f"{kind.lower()}s"] = answer(200, body, **dates)

    async def act(received: Received, writer: asyncio.StreamWriter) -> None:
        plural = received.target.partition("?")[0].rpartition("/")[2]
        await lists.get(plural, crd)(received, writer)

    async with reader_of([act] * (len(lists) + 2)) as reader:
        snapshot = await reader.read()
    assert snapshot.now.isoformat()[:16] == "2022-09-09T07:13"


@cases(
    "script names notes",
    page_by_page=(
        [
            page(marker_wire("one"), {**marker_wire("bad"), "spec": 1}, token="more"),
            page(marker_wire("two")),
        ],
        ["one", "two"],
        ["PodProbeMarker default/bad cannot be read and is left out"],
    ),
    no_permission=([refusal(403, "Forbidden")], [], []),
)
async def test_visible_objects_are_read(
    script: list[Act], names: list[str], notes: list[str]
) -> None:
    async with reader_of(script) as reader:
        found = await reader.visible(MARKERS, "")

    assert [marker.key.name for marker in found] == names
    assert [note.partition(":")[0] for note in reader.notes] == notes
