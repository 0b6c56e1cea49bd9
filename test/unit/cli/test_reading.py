"""Lists of the commands: all pages, and what the user may not list."""

import asyncio
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
    return answer(200, {"kind": "PodProbeMarkerList", "metadata": meta, "items": list(items)})


async def test_ages_are_judged_by_the_clock_of_the_server() -> None:
    dates = {"Date": "Fri, 09 Sep 2022 07:13:04 GMT"}
    kinds = ("PodProbeMarker", "Pod", "Node", "NodePodProbe", "Lease")
    meta = {"resourceVersion": "7"}
    by_path = {
        f"{kind.lower()}s": answer(200, {"kind": f"{kind}List", "metadata": meta}, **dates)
        for kind in kinds
    }

    async def act(received: Received, writer: asyncio.StreamWriter) -> None:
        plural = received.target.partition("?")[0].rpartition("/")[2]
        crd = answer(404, {"kind": "Status", "code": 404}, **dates)
        await by_path.get(plural, crd)(received, writer)

    async with (
        ScriptedHttpServer([act] * (len(kinds) + 2)).running() as server,
        client_of(ClusterConfig(server=server.url)) as client,
    ):
        snapshot = await Reader(client, namespace="a", system_namespace="kruise-system").read()
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
    async with (
        ScriptedHttpServer(script).running() as server,
        client_of(ClusterConfig(server=server.url)) as client,
    ):
        reader = Reader(client, namespace="a", system_namespace="kruise-system")
        found = await reader.visible(MARKERS, "")

    assert [each.key.name for each in found] == names
    assert [each.partition(":")[0] for each in reader.notes] == notes
