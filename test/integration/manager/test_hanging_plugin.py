"""A manager and a daemon whose exec plugin hangs at the start: they end on SIGTERM, and serve their ports."""

import asyncio
import os
import stat
from pathlib import Path

import pytest
from support import programs
from support.cases import cases
from support.kubeconfig import kubeconfig

IN_TIME_SECONDS = 20.0
"""A loaded machine is slower than the five seconds that users are promised; what hangs takes for ever."""


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """The plugin of `config` hangs until a writer of this pipe closes it."""
    made = tmp_path / "pipe"
    os.mkfifo(made)
    return made


@pytest.fixture
def config(pipe: Path, tmp_path: Path) -> Path:
    plugin = tmp_path / "plugin"
    file = tmp_path / "kubeconfig"
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}
    plugin.write_text(f"#!/bin/sh\nexec cat {pipe}\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    kubeconfig(file, cluster={"server": "http://127.0.0.1:1"}, user={"exec": command})
    return file


@cases("mode flags", manager=("manager", ()), daemon=("daemon", ("--node-name=n",)))
async def test_ports_are_served_while_the_plugin_hangs_and_sigterm_ends_it(
    mode: str, flags: tuple[str, ...], config: Path, pipe: Path, tmp_path: Path
) -> None:
    async with programs.running(mode, config, tmp_path, *flags) as program:
        with await asyncio.to_thread(pipe.open, "w"):  # the plugin runs, until this is closed
            assert await program.is_healthy()
            metrics, _ = await program.get("metrics")
            ready, text = await program.get("readyz")
            code, seconds = await program.terminate()

    assert metrics == 200
    assert ready == 503
    assert "[-]kubeconfig failed" in text
    assert code == 0
    assert seconds < IN_TIME_SECONDS
