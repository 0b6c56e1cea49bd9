"""Startup probes of the embedded node.

Source: kubelet pkg/kubelet/prober/worker.go.
Differs: only exec; a container with another startup probe counts as started at once.
"""

import asyncio

from kruise_probe.api.core import Probe
from kruise_probe_playground.node.containers import (
    CannotStart,
    ExecTimedOut,
    LocalContainer,
    NotRunning,
)
from kruise_probe_playground.node.runtime import LocalRuntime

PERIOD_SECONDS, TIMEOUT_SECONDS, FAILURE_THRESHOLD = 10, 1, 3
"""The kubelet's defaults."""


async def wait_started(runtime: LocalRuntime, container: LocalContainer, probe: Probe) -> bool:
    """Probe until success (True), or until the failure threshold (False)."""
    command = probe.exec and probe.exec.command
    if not command:
        return True
    await asyncio.sleep(probe.initial_delay_seconds or 0)
    failures = 0
    while failures < (probe.failure_threshold or FAILURE_THRESHOLD):
        try:
            result = await runtime.exec_sync(
                container, command, timeout_seconds=probe.timeout_seconds or TIMEOUT_SECONDS
            )
        except NotRunning:
            return False
        except (CannotStart, ExecTimedOut):
            failures += 1
        else:
            if result.exit_code == 0:
                return True
            failures += 1
        await asyncio.sleep(probe.period_seconds or PERIOD_SECONDS)
    return False
