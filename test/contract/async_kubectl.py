"""kubectl beside the event loop, in which the server may live."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from support.kubectl import Kubectl
from support.wire import Json


class AsyncKubectl:
    """Runs kubectl in one namespace."""

    def __init__(self, kubeconfig: Path | str, namespace: str) -> None:
        self._kubectl = Kubectl(str(kubeconfig), namespace=namespace)

    async def __call__(self, *arguments: str, stdin: Json | str | None = None) -> str:
        text = json.dumps(stdin) if isinstance(stdin, dict) else stdin
        return await asyncio.to_thread(self._kubectl.run, *arguments, stdin=text)

    async def apply(self, *objects: Json) -> None:
        await asyncio.to_thread(self._kubectl.apply, *objects)

    @asynccontextmanager
    async def started(self, *arguments: str) -> AsyncIterator[asyncio.StreamReader]:
        """Runs kubectl until the end of the block; yields its output."""
        command = self._kubectl._command(*arguments)
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        assert process.stdout
        try:
            yield process.stdout
        finally:
            process.terminate()
            await process.wait()
