"""Lists of the commands: all pages, and what the user may not list."""

import asyncio
from typing import Any

import pytest
from support.builders import marker_wire
from support.scripted_http import Act, Received, ScriptedHttpServer, answer, refusal

from kruise_probe.cli.query_client import client_of
from kruise_probe.cli.reading import Reader
from kruise_probe.client.config import ClusterConfig

pytestmark = pytest.mark.sockets


async def markers_everywhere(*script: Act) -> tuple[list[str], list[str]]:
    """The names of the markers, and the notes."""
    async with (
        ScriptedHttpServer(list(script)).running() as server,
        client_of(ClusterConfig.plain(server.url)) as client,
    ):
        reader = Reader(client, namespace="a", system_namespace="kruise-system")
        found = await reader.markers_everywhere()
        return [each.key.name for each in found], reader.notes


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
        await by_path[plural](received, writer)

    async with (
        ScriptedHttpServer([act] * len(kinds)).running() as server,
        client_of(ClusterConfig.plain(server.url)) as client,
    ):
        snapshot = await Reader(client, namespace="a", system_namespace="kruise-system").read()
    assert snapshot.now.isoformat()[:16] == "2022-09-09T07:13"


async def test_markers_of_all_namespaces_are_read_page_by_page() -> None:
    undecodable = {**marker_wire("bad"), "spec": 1}

    found = await markers_everywhere(
        page(marker_wire("one"), undecodable, token="more"), page(marker_wire("two"))
    )

    assert found == (["one", "two"], [])


async def test_markers_of_all_namespaces_are_none_without_permission() -> None:
    assert await markers_everywhere(refusal(403, "Forbidden")) == ([], [])
