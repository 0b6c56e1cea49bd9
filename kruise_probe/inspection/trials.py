"""Runs one attempt of a probe from here, through the API server, with the daemon's own prober.

Source: kubectl exec and port-forward.
Differs: the timeout of a command does not end the command; the API server has no request for that.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from kruise_probe.api.core import ExecAction, Probe, TCPSocketAction
from kruise_probe.api.errors import Forbidden, KubeError, NotFound
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.messages import normalise_message
from kruise_probe.api.v1alpha1 import ContainerProbe, ProbeState
from kruise_probe.client.pod_streams import CommandNotStarted, OutputTooLarge, run_command
from kruise_probe.client.rest import RestClient
from kruise_probe.daemon.cri.runtime import (
    MAX_EXEC_RESPONSE_BYTES,
    ExecImpossible,
    ExecOutputTooLarge,
    ExecResult,
    ExecTimeout,
)
from kruise_probe.daemon.probers.exec import Commands
from kruise_probe.daemon.probers.prober import (
    CouldNotProbe,
    Prober,
    Target,
    address_of,
)
from kruise_probe.daemon.probers.selection import prober_for
from kruise_probe.inspection.attempts import TrialResult, not_run
from kruise_probe.inspection.forwarding import Forwarder, ForwardFailed

NOT_SERVED: Final = "could not find the requested resource"
"""The API server's words for a path that it does not serve."""
_EXEC_FAILED: Final = ("Internal error occurred: ", "error executing command in container: ")
"""Words of the API server and of kubelet before those of the runtime."""


class PodCommands(Commands):
    """Runs the commands of probes by pods/exec. The `container_id` of a target is the name of its container."""

    def __init__(self, client: RestClient, pod: NamespacedName) -> None:
        self._client = client
        self._pod = pod

    async def exec_sync(
        self, container_id: str, command: Sequence[str], *, timeout_seconds: float
    ) -> ExecResult:
        """Run the command.

        Raises:
            RuntimeFailure: as the daemon's runtime.
            KubeError: the API server refuses the request, or the stream broke.
        """
        try:
            output = await run_command(
                self._client,
                self._pod,
                container_id,
                command,
                timeout_seconds=timeout_seconds,
                max_output_bytes=MAX_EXEC_RESPONSE_BYTES,
            )
        except TimeoutError as error:
            raise ExecTimeout(timeout_seconds) from error
        except OutputTooLarge as error:
            raise ExecOutputTooLarge from error
        except CommandNotStarted as error:
            text = str(error)
            for words in _EXEC_FAILED:
                text = text.removeprefix(words)
            raise ExecImpossible(text) from error
        return ExecResult(output.exit_code, output.stdout, output.stderr)


async def run_probe(
    client: RestClient,
    pod: NamespacedName,
    entry: ContainerProbe,
    target: Target,
    *,
    user_agent: str,
) -> TrialResult:
    """Run one attempt. It ends within the probe's timeout, plus the time to open the stream.

    The `container_id` of `target` is the name of the container.
    """
    probe = entry.probe
    subresource = "exec" if isinstance(probe.handler, ExecAction) else "portforward"
    async with Forwarder(client, pod) as forwarder:
        prober = prober_for(
            entry,
            commands=PodCommands(client, pod),
            user_agent=user_agent,
            open_socket=forwarder.open_socket,
        )
        try:
            await _prepare(forwarder, probe, target)
            return await _attempt(prober, probe, target)
        except CouldNotProbe as error:
            return TrialResult(ProbeState.UNKNOWN, normalise_message(str(error)))
        except ForwardFailed as error:
            message = f"PortForwardFailed: {error}"
        except Forbidden as error:
            message = f"Forbidden: {error.message}; it needs get and create on pods/{subresource}"
        except NotFound as error:
            message = f"StreamNotFound: {error.message}"
            if NOT_SERVED in error.message:
                message = f"StreamNotServed: this API server has no pods/{subresource}; use one with real nodes, not the playground"
        except KubeError as error:
            message = f"StreamFailed: {error}"
    return not_run(normalise_message(message))


async def _prepare(forwarder: Forwarder, probe: Probe, target: Target) -> None:
    """Open the port-forward of the first connection, so that its time is not part of the attempt."""
    action = probe.http_get or probe.tcp_socket or probe.grpc
    if action is not None:
        address = address_of(target, action.port)
        await forwarder.prepare(address, wait_for_refusal=action is probe.tcp_socket)


async def _attempt(prober: Prober, probe: Probe, target: Target) -> TrialResult:
    loop = asyncio.get_running_loop()
    began = loop.time()
    result = await prober.run(target)
    state = ProbeState.SUCCEEDED if result.succeeded else ProbeState.FAILED
    # A port-forward does not say when the connection was established.
    seconds = None if isinstance(probe.handler, TCPSocketAction) else loop.time() - began
    return TrialResult(
        state,
        result.message,
        seconds,
    )
