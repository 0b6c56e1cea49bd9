"""What a probe asks, as bytes and as a short hash: the same for equal questions, in every run of the daemon."""

from hashlib import blake2b

import msgspec

from kruise_probe.api.core import Probe

_encoder = msgspec.json.Encoder()


def _actions(probe: Probe) -> list[tuple[str, object]]:
    actions = (
        ("exec", probe.exec),
        ("httpGet", probe.http_get),
        ("tcpSocket", probe.tcp_socket),
        ("grpc", probe.grpc),
    )
    return [(name, action) for name, action in actions if action is not None]


def handler_bytes(probe: Probe) -> bytes:
    """The actions of a probe, all that are set, by name."""
    return _encoder.encode(_actions(probe))


def handler_type(probe: Probe) -> str:
    """Wire name of the probe's action, for metrics; `invalid` without one or with several."""
    actions = _actions(probe)
    return actions[0][0] if len(actions) == 1 else "invalid"


def probe_hash(probe: Probe) -> str:
    """16 hexadecimal digits over what decides a verdict: the actions and the timeout.

    Periods and thresholds are not in it: a state that was reached with other ones is still the state.
    """
    text = handler_bytes(probe) + b"\0%d" % probe.effective_timeout_seconds
    return blake2b(text, digest_size=8).hexdigest()
