"""The handler of a probe as bytes and as a short hash; both are stable across restarts of the daemon."""

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
    """All actions that are set in a probe, with their names, as JSON."""
    return _encoder.encode(_actions(probe))


def handler_type(probe: Probe) -> str:
    """Wire name of the probe's action, for metrics; `invalid` for none or several."""
    actions = _actions(probe)
    return actions[0][0] if len(actions) == 1 else "invalid"


def probe_hash(probe: Probe) -> str:
    """16 hexadecimal digits over the actions and the timeout: the fields that decide the result of one attempt.

    Periods and thresholds are not included: the state stays valid when they change. Manager and daemon of different
    versions compare hashes, so the format never changes.
    """
    text = handler_bytes(probe) + b"\0%d" % probe.effective_timeout_seconds
    return blake2b(text, digest_size=8).hexdigest()
