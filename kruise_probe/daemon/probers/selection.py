"""Selects the prober of a probe, once, when its worker starts.

Source: kubelet pkg/kubelet/prober/prober.go (runProbe).
Differs: kubelet selects at every attempt; here a `host` is refused.
"""

from kruise_probe.api.core import ExecAction, GRPCAction, HTTPGetAction, Probe, TCPSocketAction
from kruise_probe.daemon.probers.exec import ExecProber
from kruise_probe.daemon.probers.exec_gate import ExecGate
from kruise_probe.daemon.probers.http import HttpProber
from kruise_probe.daemon.probers.prober import Prober
from kruise_probe.daemon.probers.refused import RefusedProber, refused_host
from kruise_probe.daemon.probers.tcp import TcpProber


def prober_for(probe: Probe, *, gate: ExecGate, user_agent: str) -> Prober:
    """The prober of the probe's action, with its effective timeout.

    Args:
        probe: may be invalid; the prober of an invalid probe fails with the reason.
        gate: runs the commands of exec probes.
        user_agent: `kruise-probe/<version>`.
    """
    timeout = float(probe.effective_timeout_seconds)
    match probe.handler:
        case ExecAction() as action:
            return ExecProber(
                action,
                timeout_seconds=timeout,
                period_seconds=probe.effective_period_seconds,
                gate=gate,
            )
        case HTTPGetAction(host=str(host)) if host:
            return refused_host("httpGet.host", host)
        case TCPSocketAction(host=str(host)) if host:
            return refused_host("tcpSocket.host", host)
        case HTTPGetAction() as action:
            return HttpProber(action, timeout_seconds=timeout, user_agent=user_agent)
        case TCPSocketAction(port=port):
            return TcpProber(port, timeout_seconds=timeout)
        case GRPCAction() as action:
            # Imported here, because h2 takes more than 1 MB and most nodes never use it.
            from kruise_probe.daemon.probers.grpc import GrpcProber

            return GrpcProber(action, timeout_seconds=timeout, user_agent=user_agent)
        case None:
            return RefusedProber(
                "InvalidProbe: it has no handler; add exec, httpGet, tcpSocket or grpc"
            )
