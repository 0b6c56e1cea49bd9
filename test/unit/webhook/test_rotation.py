"""The rotation of a certificate: API servers trust whatever any replica serves, at every moment."""

from datetime import UTC, datetime, timedelta

from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from kruise_probe.serving.certificates import issue_certificate
from kruise_probe.webhook.cert_rotator import (
    RotationState,
    RotationTimes,
    from_data,
    next_state,
    to_data,
)

NAMES = ["kruise-probe-webhook.kruise-system.svc"]
START = datetime(2026, 1, 1, tzinfo=UTC)
TIMES = RotationTimes(timedelta(days=10), timedelta(days=3), timedelta(seconds=60))
FIRST = issue_certificate(NAMES, now=START, lifetime=TIMES.lifetime)
INITIAL = RotationState(FIRST, START)


def step(state: RotationState | None, at: timedelta) -> RotationState | None:
    """The next state; None if no step is due."""
    following = next_state(state, names=NAMES, now=START + at, times=TIMES)
    return None if following is state else following


def is_trusted(certificate: bytes, bundle: bytes) -> bool:
    served = x509.load_pem_x509_certificate(certificate)
    return served in x509.load_pem_x509_certificates(bundle)


def test_a_certificate_is_replaced_in_three_settled_steps() -> None:
    day = timedelta(days=7)

    assert step(INITIAL, day - timedelta(seconds=1)) is None
    both = step(INITIAL, day)
    assert both is not None
    assert both.following is not None
    assert both.current == FIRST
    assert step(both, day + timedelta(seconds=59)) is None

    switched = step(both, day + timedelta(seconds=60))
    assert switched is not None
    assert switched.current == both.following
    assert is_trusted(FIRST.certificate, switched.bundle)
    assert step(switched, day + timedelta(seconds=119)) is None

    alone = step(switched, day + timedelta(seconds=120))
    assert alone is not None
    assert alone.bundle == switched.current.certificate
    assert step(alone, day + timedelta(seconds=180)) is None


def test_an_expired_or_misnamed_certificate_is_replaced_at_once() -> None:
    expired = step(INITIAL, TIMES.lifetime)
    other = next_state(INITIAL, names=["other.svc"], now=START, times=TIMES)

    assert expired is not None
    assert expired.current != FIRST
    assert other is not None
    assert other.current.names == {"other.svc"}


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(min_value=1, max_value=4 * 86400), min_size=1, max_size=12))
def test_replicas_one_step_apart_trust_each_others_certificates(pauses: list[int]) -> None:
    state = INITIAL
    at = timedelta()
    for pause in pauses:
        at += timedelta(seconds=pause)
        newer = step(state, at)
        if newer is None:
            continue
        if state.current.expires_at > START + at:
            assert is_trusted(state.current.certificate, newer.bundle)
            assert is_trusted(newer.current.certificate, state.bundle)
        assert is_trusted(newer.current.certificate, newer.bundle)
        state = newer


def test_an_empty_or_malformed_secret_is_ignored() -> None:
    no_certificate = INITIAL._replace(current=FIRST._replace(certificate=b"AAAA"))
    no_key = INITIAL._replace(following=FIRST._replace(key=FIRST.certificate))

    assert from_data(None) is None
    assert from_data({}) is None
    assert from_data({"state.json": "AAAA"}) is None
    assert from_data({"state.json": "A"}) is None
    assert from_data(to_data(no_certificate)) is None
    assert from_data(to_data(no_key)) is None
