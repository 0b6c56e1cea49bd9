"""Decides how the webhook's certificate is rotated without a failed call, and reads and writes the Secret that stores it.

All replicas share the Secret. Each step waits until the previous one has settled: by then every API server has
the CA bundle, and every replica has the certificate.

    one certificate ── near expiry ──▶  + the following one: the bundle has both CAs, the old certificate is served
                    ── settled     ──▶  the following certificate is served, the bundle still has both CAs
                    ── settled     ──▶  the old CA is removed

Source: cert-controller (open-policy-agent) and controller-runtime pkg/certwatcher.
Differs: bundle and certificate change in separate steps. The sources replace both at once, and calls fail meanwhile.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from kruise_probe.api.times import format_micro_time, parse_time
from kruise_probe.serving.certificates import IssuedCertificate, issue_certificate

_SINCE: Final = "since"


class RotationTimes(NamedTuple):
    """How long a certificate is valid, how long before its expiry it is renewed, and how long a step settles."""

    lifetime: timedelta = timedelta(days=365)
    renew_before: timedelta = timedelta(days=90)
    settle: timedelta = timedelta(seconds=60)


class RotationState(NamedTuple):
    """Content of the Secret; `changed_at` is when it last changed."""

    current: IssuedCertificate
    changed_at: datetime
    following: IssuedCertificate | None = None
    previous_authority: bytes = b""

    @property
    def bundle(self) -> bytes:
        """CAs of the current, the following and the previous certificate."""
        following = self.following.authority if self.following else b""
        return self.current.authority + following + self.previous_authority


def next_state(
    state: RotationState | None, *, names: Sequence[str], now: datetime, times: RotationTimes
) -> RotationState | None:
    """Return the next content of the Secret; None if no step is due."""
    if state is None or state.current.expires_at <= now or not state.current.names >= {*names}:
        return RotationState(issue_certificate(names, now=now, lifetime=times.lifetime), now)
    settled = now - state.changed_at >= times.settle
    if state.following is not None:
        if not settled:
            return None
        return RotationState(state.following, now, previous_authority=state.current.authority)
    if state.previous_authority:
        return RotationState(state.current, now) if settled else None
    if state.current.expires_at - now <= times.renew_before:
        following = issue_certificate(names, now=now, lifetime=times.lifetime)
        return RotationState(state.current, now, following=following)
    return None


def to_data(state: RotationState) -> dict[str, str | None]:
    """Encode the Secret's data as a merge patch; removed keys are null."""
    following = state.following or IssuedCertificate(b"", b"", b"")
    texts = {
        "ca.crt": state.bundle,
        "tls.crt": state.current.certificate,
        "tls.key": state.current.key,
        "own-ca.crt": state.current.authority,
        "following-ca.crt": following.authority,
        "following.crt": following.certificate,
        "following.key": following.key,
        "previous-ca.crt": state.previous_authority,
        _SINCE: format_micro_time(state.changed_at).encode(),
    }
    return {name: base64.b64encode(text).decode() if text else None for name, text in texts.items()}


def from_data(data: Mapping[str, str] | None) -> RotationState | None:
    """Decode the Secret's data; None if it is empty or invalid."""
    try:
        texts = {name: base64.b64decode(text) for name, text in (data or {}).items()}
        changed_at = parse_time(texts[_SINCE].decode())
        if changed_at is None:
            return None
        following = None
        if texts.get("following.crt"):
            following = IssuedCertificate.parse(
                texts["following-ca.crt"], texts["following.crt"], texts["following.key"]
            )
        return RotationState(
            IssuedCertificate.parse(texts["own-ca.crt"], texts["tls.crt"], texts["tls.key"]),
            changed_at,
            following,
            texts.get("previous-ca.crt", b""),
        )
    except (KeyError, ValueError, binascii.Error):
        return None
