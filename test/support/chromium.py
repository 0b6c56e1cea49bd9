"""A headless Chromium that a test drives by the DevTools protocol."""

import asyncio
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from support.patience import PATIENCE_SECONDS
from support.wire import Json

NAMES = ("chromium", "google-chrome", "chromium-browser")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)


def program() -> str | None:
    """The first of NAMES in PATH."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class BrowserTab:
    """One tab. `problems` are console errors, exceptions and failed requests since the last `open`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.problems: list[str] = []

    async def open(self, url: str, width: int, height: int = 900) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.problems = []
        await self.call("Page.navigate", url=url)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await self._receive()).get("method") != "Page.loadEventFired":
                pass

    async def evaluate(self, script: str) -> Any:
        """Run JavaScript, wait for its promise, and return its value."""
        answer = await self.call(
            "Runtime.evaluate",
            expression=script,
            awaitPromise=True,
            returnByValue=True,
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, script: str) -> Any:
        """Evaluate an expression until its value is true, and return the value."""
        look = f"const value = {script}; value ? done(value) : setTimeout(look, 20)"
        return await self.evaluate(
            f"new Promise(done => {{ const look = () => {{ {look} }}; look() }})"
        )

    async def call(self, method: str, **parameters: Any) -> Json:
        number = next(self._numbers)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._socket.send_json({"id": number, "method": method, "params": parameters})
            while (message := await self._receive()).get("id") != number:
                pass
        assert "error" not in message, f"{method}: {message['error']}"
        result: Json = message["result"]
        return result

    async def _receive(self) -> Json:
        message: Json = json.loads(await self._socket.receive_str())
        match message:
            case {"method": "Runtime.exceptionThrown", "params": {"exceptionDetails": details}}:
                self.problems.append(f"exception: {details}")
            case {"method": "Runtime.consoleAPICalled", "params": {"type": "error", "args": said}}:
                self.problems.append(f"console: {said}")
            case {"method": "Log.entryAdded", "params": {"entry": {"level": "error"} as entry}}:
                self.problems.append(f"log: {entry['text']} {entry.get('url', '')}")
            case _:
                pass
        return message


@asynccontextmanager
async def browser() -> AsyncIterator[BrowserTab]:
    """Start Chromium with an empty profile, and end it with all of its processes."""
    chromium = program()
    assert chromium, f"none of {NAMES} is in PATH"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            chromium,
            *FLAGS,
            f"--user-data-dir={profile}",
            "about:blank",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                port = await _port_of(process)
            async with aiohttp.ClientSession() as session:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    socket_url = await _page_of(session, port)
                async with session.ws_connect(socket_url, max_msg_size=0) as socket:
                    page = BrowserTab(socket)
                    for domain in ("Page", "Runtime", "Log"):
                        await page.call(f"{domain}.enable")
                    yield page
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()


async def _page_of(session: aiohttp.ClientSession, port: int) -> str:
    """The socket of the first tab, which comes some time after the port."""
    while True:
        async with session.get(f"http://127.0.0.1:{port}/json/list") as response:
            for target in await response.json():
                if target["type"] == "page":
                    return str(target["webSocketDebuggerUrl"])
        await asyncio.sleep(0.05)


async def _port_of(process: asyncio.subprocess.Process) -> int:
    assert process.stderr
    said = ""
    async for line in process.stderr:
        said += line.decode(errors="replace")
        found = re.search(r"DevTools listening on .*//127\.0\.0\.1:(\d+)", said)
        if found:
            return int(found[1])
    raise AssertionError(f"Chromium ended:\n{said}")
