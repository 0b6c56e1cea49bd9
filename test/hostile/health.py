"""Health checks of a process, as the kubelet makes them."""

import asyncio
from typing import Final

from support.programs import Program

FAILURES_OF_A_RESTART: Final = 3
"""So many in a row restart a container (failureThreshold). A single one can be due to a machine that stalls."""
CHECK_SECONDS: Final = 0.2
"""Between two checks."""


class HealthChecks:
    """Checks of a program's /healthz.

    Attributes:
        passed: number of checks that returned 200.
    """

    def __init__(self, program: Program) -> None:
        self.passed = 0
        self._program = program
        self._failures: list[tuple[int, str]] = []

    async def check(self) -> None:
        """Raises AssertionError if the kubelet would restart the container now."""
        status, text = await self._program.get("healthz")
        if status == 200:
            self.passed += 1
            self._failures.clear()
        else:
            self._failures.append((status, text))
        assert len(self._failures) < FAILURES_OF_A_RESTART, (
            f"after {self.passed} checks that passed: {self._failures}; {self._program.tail()}"
        )

    async def repeat(self) -> None:
        while True:
            await self.check()
            await asyncio.sleep(CHECK_SECONDS)
