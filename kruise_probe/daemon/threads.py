"""The threads of steps that need much CPU and cannot be interrupted, shared as places by namespace and pod.

Differs: an executor of the standard library needs twice the CPU for a step, and the process waits for it at its end.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, NamedTuple

from kruise_probe.daemon.places import Kind, Place, Places, Tenant
from kruise_probe.daemon.probers.prober import CouldNotProbe, Reason

MAX_THREADS: Final = 4
"""Two hostile namespaces leave one to the others."""

STEPS: Final = Kind(
    Reason.ATTEMPT_QUEUED,
    "thread",
    "threads",
    "search or TLS handshake",
    "use a certificate chain of common keys, or a smaller pattern",
    "move the pod to another node",
)


class _Job(NamedTuple):
    step: Callable[[], bool]
    place: Place
    done: asyncio.Future[bool]


class Threads:
    """Runs a step in a thread. A pod has at most half of the threads."""

    def __init__(self) -> None:
        self._places = Places(MAX_THREADS, STEPS)
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._started = 0

    async def run(self, tenant: Tenant, step: Callable[[], bool], deadline: float) -> bool:
        """Run the step. At `deadline`, or when the caller is cancelled, it runs on and keeps its thread until its end.

        Raises:
            TimeoutError: at `deadline`.
            CouldNotProbe: no thread was free until `deadline`.
        """
        place = self._places.request(tenant, long=False)
        if not place.granted:
            await self._wait(place, deadline)
        self._start_thread()
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(step, place, done))
        try:
            async with asyncio.timeout_at(deadline):
                return await done
        finally:
            del done  # its error has this frame and the text of the pod, so they would stay until a garbage collection

    def _start_thread(self) -> None:
        """Start one if all are in use."""
        if self._started < self._places.in_flight:
            self._started += 1
            thread = threading.Thread(target=self._work, name="step", daemon=True)
            thread.start()

    async def _wait(self, place: Place, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await place.wait()
        except BaseException as error:
            text = self._places.describe(place)
            self._places.release(place)
            if isinstance(error, TimeoutError):
                raise CouldNotProbe(self._places.reason, text) from None
            raise

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            error = None
            succeeded = False
            try:
                succeeded = job.step()
            except Exception as raised:  # noqa: BLE001 - the caller gets it
                error = raised
            # The loop may have ended before the step.
            with contextlib.suppress(RuntimeError):
                job.done.get_loop().call_soon_threadsafe(self._end, job, succeeded, error)
            del job, error  # while the thread waits

    def _end(self, job: _Job, succeeded: bool, error: Exception | None) -> None:
        self._places.release(job.place)
        if job.done.done():
            return
        if error is None:
            job.done.set_result(succeeded)
        else:
            job.done.set_exception(error)
