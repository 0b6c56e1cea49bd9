"""The rotation of a certificate: API servers trust whatever any replica serves, at every moment."""

from collections.abc import Sequence
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
TIMES = RotationTimes(
    timedelta(days=10),
    timedelta(days=3),
    timedelta(seconds=60),
)
FIRST = issue_certificate(NAMES, now=START, lifetime=TIMES.lifetime)
INITIAL = RotationState(FIRST, START)


def step(state: RotationState, at: timedelta, names: Sequence[str] = NAMES) -> RotationState:
    """The next state, which is `state` itself if no step is due."""
    return next_state(
        state,
        names=names,
        now=START + at,
        times=TIMES,
    )


def is_trusted(certificate: bytes, bundle: bytes) -> bool:
    served = x509.load_pem_x509_certificate(certificate)
    return served in x509.load_pem_x509_certificates(bundle)


def test_a_certificate_is_replaced_in_three_settled_steps() -> None:
    def after(seconds: int) -> timedelta:
        return timedelta(days=7, seconds=seconds)

    assert step(INITIAL, after(-1)) is INITIAL
    both = step(INITIAL, after(0))
    assert both.following is not None
    assert both.current == FIRST
    assert step(both, after(59)) is both

    switched = step(both, after(60))
    assert switched.current == both.following
    assert is_trusted(FIRST.certificate, switched.bundle)
    assert step(switched, after(119)) is switched

    alone = step(switched, after(120))
    assert alone.bundle == switched.current.certificate
    assert step(alone, after(180)) is alone


def test_an_expired_or_misnamed_certificate_is_replaced_at_once() -> None:
    replaced = step(INITIAL, TIMES.lifetime)
    renamed = step(INITIAL, timedelta(), ["other.svc"])

    assert replaced.current != FIRST
    assert renamed.current.names == {"other.svc"}


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(min_value=1, max_value=4 * 86400), min_size=1, max_size=12))
def test_replicas_one_step_apart_trust_each_others_certificates(pauses: list[int]) -> None:
    state = INITIAL
    at = timedelta()
    for pause in pauses:
        at += timedelta(seconds=pause)
        newer = step(state, at)
        if newer is state:
            continue
        old = state.current
        new = newer.current
        if old.expires_at > START + at:
            assert is_trusted(old.certificate, newer.bundle)
            assert is_trusted(new.certificate, state.bundle)
        assert is_trusted(new.certificate, newer.bundle)
        state = newer


def test_an_empty_or_malformed_secret_is_ignored() -> None:
    no_certificate = INITIAL._replace(current=FIRST._replace(certificate=b"AAAA"))
    no_key = INITIAL._replace(following=FIRST._replace(key=FIRST.certificate))

    for data in (
        None,
        {},
        {"state.json": "AAAA"},
        {"state.json": "A"},
        to_data(no_certificate),
        to_data(no_key),
    ):
        assert from_data(data) is None
