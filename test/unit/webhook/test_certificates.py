"""The steps from one certificate to the next: whatever is served is vouched for, at every moment, by what was said."""

import ssl
from datetime import UTC, datetime, timedelta

from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from kruise_probe.webhook.certificates import (
    Generation,
    Kept,
    Pace,
    from_data,
    new_generation,
    next_step,
    to_data,
)

NAMES = ["kruise-probe-webhook.kruise-system.svc"]
START = datetime(2026, 1, 1, tzinfo=UTC)
PACE = Pace(timedelta(days=10), timedelta(days=3), timedelta(seconds=60))
FIRST = new_generation(NAMES, now=START, lifetime=PACE.lifetime)


def step(kept: Kept | None, at: timedelta) -> Kept | None:
    return next_step(kept, names=NAMES, now=START + at, pace=PACE)


def vouched_for(certificate: bytes, bundle: bytes) -> bool:
    leaf = x509.load_pem_x509_certificate(certificate)
    for authority in x509.load_pem_x509_certificates(bundle):
        try:
            leaf.verify_directly_issued_by(authority)
        except Exception:  # noqa: BLE001 - another authority's
            continue
        return True
    return False


def test_the_first_step_makes_a_generation() -> None:
    kept = step(None, timedelta())

    assert kept is not None
    assert vouched_for(kept.current.certificate, kept.bundle)
    assert kept.current.names == set(NAMES)
    assert kept.current.expires_at == START + PACE.lifetime
    assert step(kept, timedelta(days=6)) is None


def test_a_certificate_is_followed_in_three_settled_steps() -> None:
    kept = Kept(FIRST, START)
    day = timedelta(days=7, seconds=1)

    both = step(kept, day)
    assert both is not None
    assert both.following is not None
    assert both.current == FIRST
    assert step(both, day + timedelta(seconds=59)) is None

    switched = step(both, day + timedelta(seconds=60))
    assert switched is not None
    assert switched.current == both.following
    assert vouched_for(FIRST.certificate, switched.bundle)
    assert step(switched, day + timedelta(seconds=119)) is None

    alone = step(switched, day + timedelta(seconds=120))
    assert alone is not None
    assert alone.bundle == switched.current.authority
    assert step(alone, day + timedelta(seconds=180)) is None


def test_an_expired_or_misnamed_certificate_is_replaced_at_once() -> None:
    expired = step(Kept(FIRST, START), timedelta(days=11))
    other = next_step(Kept(FIRST, START), names=["other.svc"], now=START, pace=PACE)

    assert expired is not None
    assert expired.current != FIRST
    assert other is not None
    assert other.current.names == {"other.svc"}


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(min_value=1, max_value=4 * 86400), min_size=1, max_size=12))
def test_neither_replica_serves_what_the_other_ones_bundle_does_not_know(pauses: list[int]) -> None:
    """A replica may be one step behind: what it serves and what it said must fit the newest all the same."""
    kept, at = Kept(FIRST, START), timedelta()
    for pause in pauses:
        at += timedelta(seconds=pause)
        newer = step(kept, at)
        if newer is None:
            continue
        if kept.current.expires_at > START + at:
            assert vouched_for(kept.current.certificate, newer.bundle)
            assert vouched_for(newer.current.certificate, kept.bundle)
        assert vouched_for(newer.current.certificate, newer.bundle)
        kept = newer


def test_the_secret_holds_it_all_and_drops_what_is_not_kept() -> None:
    kept = Kept(FIRST, START, following=FIRST, previous_authority=FIRST.authority)

    data = to_data(kept)

    assert from_data({name: text for name, text in data.items() if text}) == kept
    assert to_data(Kept(FIRST, START))["following.key"] is None


def test_a_secret_of_no_use_is_as_none() -> None:
    good = {name: text for name, text in to_data(Kept(FIRST, START)).items() if text}

    assert from_data(None) is None
    assert from_data({}) is None
    assert from_data({**good, "tls.crt": "AAAA"}) is None
    assert from_data({**good, "tls.key": good["tls.crt"]}) is None
    assert from_data({**good, "since": "AAAA"}) is None
    assert from_data({name: text for name, text in good.items() if name != "tls.key"}) is None


def test_a_client_that_verifies_strictly_takes_it() -> None:
    """Go's rules: a name of its own, and for a server."""
    made = Generation(*FIRST)
    leaf = x509.load_pem_x509_certificate(made.certificate)

    context = ssl.create_default_context(cadata=made.authority.decode())
    assert context.cert_store_stats()["x509_ca"] == 1
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert x509.oid.ExtendedKeyUsageOID.SERVER_AUTH in usage
