"""Watches of the embedded API server keep the promises of `support/watch_validation.py` over random histories."""

import asyncio
import functools
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from support.watch_validation import WatchedChange, watch_problems

from kruise_probe.api.keys import NamespacedName
from kruise_probe_playground.apiserver.builtin import builtin_kinds
from kruise_probe_playground.apiserver.handlers import Call, VerbHandlers, verb_of
from kruise_probe_playground.apiserver.kinds import Kind
from kruise_probe_playground.apiserver.registry import Registry
from kruise_probe_playground.apiserver.requests import parse_path

EPOCH = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NODES = "/api/v1/nodes"
SELECTED = "x"
"""The value of label `app` that clients with a selector select."""


@functools.cache
def kinds() -> tuple[Kind, ...]:
    return tuple(builtin_kinds())


class Server:
    """Handlers, and the history of what was written to Nodes: all of it, and as a client with a selector sees it."""

    def __init__(self) -> None:
        self.registry = Registry(kinds(), now=lambda: EPOCH)
        self.handlers = VerbHandlers(self.registry)
        self.written: list[WatchedChange] = []
        self.selected: list[WatchedChange] = []

    @property
    def version(self) -> int:
        return self.registry.store.revision

    def call(self, method: str, name: str, query: Mapping[str, str], body: Any = None) -> Call:
        parsed = parse_path(f"{NODES}/{name}" if name else NODES)
        assert parsed is not None
        kind = self.registry.kinds["nodes"]
        data = b"" if body is None else msgspec.json.encode(body)
        headers = {"content-type": "application/json", "user-agent": "test/1"}
        return Call(verb_of(method, parsed, query), kind, parsed, query, headers, data)

    def _app(self, name: str) -> str | None:
        """The value of the label, or None if there is no such Node."""
        collection = self.registry.collection(self.registry.kinds["nodes"])
        stored = collection.objects.get(NamespacedName("", name))
        return None if stored is None else stored.labels["app"]

    def write(self, name: str, app: str | None) -> None:
        """Create, replace or delete (None) a Node."""
        before, version = self._app(name), self.version
        body = {"metadata": {"name": name, "labels": {"app": app}}}
        if app is None:
            if before is None:
                return
            self.handlers.respond(self.call("DELETE", name, {}))
        elif before is None:
            self.handlers.respond(self.call("POST", "", {}, body))
        else:
            self.handlers.respond(self.call("PUT", name, {}, body))
        if self.version == version:
            assert before == app, "only an update without a change writes nothing"
            return
        self._note(self.written, name, before is not None, app is not None)
        self._note(self.selected, name, before == SELECTED, app == SELECTED)

    def _note(self, history: list[WatchedChange], name: str, was: bool, is_now: bool) -> None:
        if was or is_now:
            type = "DELETED" if not is_now else "MODIFIED" if was else "ADDED"
            history.append(WatchedChange(self.version, type, name))


class Client:
    """Watches from a version on, and resumes from the last version that it has seen."""

    def __init__(self, server: Server, since: int, *, selective: bool) -> None:
        self._server = server
        self._selective = selective
        self._since = self._newest = since
        self._events: list[WatchedChange] = []
        self._task = asyncio.create_task(self._read())

    async def reconnect(self) -> None:
        await self.close()
        self._task = asyncio.create_task(self._read())

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _read(self) -> None:
        query = {
            "watch": "1",
            "resourceVersion": str(self._newest),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "100000",
        }
        if self._selective:
            query["labelSelector"] = f"app={SELECTED}"
        watch = self._server.handlers.watch(self._server.call("GET", "", query))
        try:
            frames = watch.frames()
            assert isinstance(frames, AsyncGenerator)
            async with aclosing(frames):
                async for frame in frames:
                    for line in frame.splitlines():
                        self._receive(msgspec.json.decode(line))
        finally:
            watch.close()

    def _receive(self, event: Any) -> None:
        metadata = event["object"]["metadata"]
        self._newest = int(metadata["resourceVersion"])
        self._events.append(WatchedChange(self._newest, event["type"], metadata.get("name", "")))

    def problems(self) -> list[str]:
        server = self._server
        history = server.selected if self._selective else server.written
        return watch_problems(history, self._events, since=self._since, until=server.version)


stories = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from("abc"), st.sampled_from([SELECTED, "y", None])),
        st.tuples(st.just("open"), st.booleans(), st.integers(0, 30)),
        st.tuples(st.just("reconnect"), st.integers(0, 3), st.none()),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.1, 30.0]), st.none()),
    ),
    min_size=8,
    max_size=40,
)


@given(stories)
@settings(deadline=None, max_examples=100)
async def test_a_watch_keeps_its_promises_over_random_histories(
    story: list[tuple[str, Any, Any]],
) -> None:
    server = Server()
    clients = [Client(server, server.version, selective=each) for each in (False, True)]
    first = server.version
    for what, argument, more in story:
        match what:
            case "write":
                server.write(argument, more)
            case "open":
                since = min(first + more, server.version)
                clients.append(Client(server, since, selective=argument))
            case "reconnect":
                await clients[argument % len(clients)].reconnect()
            case _:
                await asyncio.sleep(argument)
    await asyncio.sleep(31)
    for each in clients:
        await each.close()
    assert [each.problems() for each in clients] == [[]] * len(clients)
