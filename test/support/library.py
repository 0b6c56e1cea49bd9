"""The controllers of docs/library.md, as modules."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from support.pages import block, blocks

from kruise_probe.runtime import Manager, load_config

EXAMPLES = {
    "buckets": block("library.md", "Finalizer, status and events", "python").text,
    "fleets": block("library.md", "Owned pods", "python").text,
    "node_load": block("library.md", "Three kinds joined", "python").text,
}
MAIN = next(each.text for each in blocks("python") if "manager.run()" in each.text)


def _module_of(name: str) -> ModuleType:
    module = ModuleType(name)
    sys.modules[name] = module  # msgspec resolves annotations there
    exec(compile(EXAMPLES[name], f"{name}.py", "exec"), module.__dict__)
    return module


MODULES = {name: _module_of(name) for name in EXAMPLES}


@asynccontextmanager
async def running(
    kubeconfig: Path, name: str, *arguments: Any, namespace: str = ""
) -> AsyncIterator[Manager]:
    """The manager of one controller, in this process."""
    manager = Manager(load_config(str(kubeconfig)), name=name, namespace=namespace)
    MODULES[name].setup(manager, *arguments)
    task = asyncio.create_task(manager.start())
    try:
        yield manager
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()
