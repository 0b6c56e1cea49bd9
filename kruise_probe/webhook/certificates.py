"""Self-managed webhook certificates, and their rotation without a failed call.

A generation is a CA and one certificate that it signed. The CA's key is discarded right after signing, so it cannot
be stolen. All replicas share one Secret with the state of the rotation.

    one generation  ── near expiry ──▶  + the following one: the bundle has both CAs, the old certificate is served
                    ── settled     ──▶  the following certificate is served, the bundle still has both CAs
                    ── settled     ──▶  the old CA is removed

A step is due once the previous one has settled: by then every API server has the bundle, and every replica has the
certificate.

Source: cert-controller (open-policy-agent) and controller-runtime pkg/certwatcher.
Differs: bundle and certificate change in separate steps. The sources replace both at once, and calls fail meanwhile.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kruise_probe.api.times import format_micro_time, parse_time

_BACKDATED: Final = timedelta(minutes=5)
"""Tolerance for API servers whose clock is behind."""
_SINCE: Final = "since"


class Pace(NamedTuple):
    """Rotation times: how long a generation is valid, when it is renewed, and how long a step settles."""

    lifetime: timedelta = timedelta(days=365)
    renew_before: timedelta = timedelta(days=90)
    settle: timedelta = timedelta(seconds=60)


class Generation(NamedTuple):
    """A CA, and a certificate that it signed with its key, in PEM."""

    authority: bytes
    certificate: bytes
    key: bytes

    @property
    def expires_at(self) -> datetime:
        return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc

    @property
    def names(self) -> frozenset[str]:
        certificate = x509.load_pem_x509_certificate(self.certificate)
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        return frozenset(extension.value.get_values_for_type(x509.DNSName))


class Kept(NamedTuple):
    """Content of the Secret; `since` is when it last changed."""

    current: Generation
    since: datetime
    following: Generation | None = None
    previous_authority: bytes = b""

    @property
    def bundle(self) -> bytes:
        """CAs of the current, the following and the previous certificate."""
        following = self.following.authority if self.following else b""
        return self.current.authority + following + self.previous_authority


def next_step(kept: Kept | None, *, names: Sequence[str], now: datetime, pace: Pace) -> Kept | None:
    """Return the next content of the Secret; None if no step is due."""
    if kept is None or kept.current.expires_at <= now or not kept.current.names >= {*names}:
        return Kept(new_generation(names, now=now, lifetime=pace.lifetime), now)
    settled = now - kept.since >= pace.settle
    if kept.following is not None:
        if not settled:
            return None
        return Kept(kept.following, now, previous_authority=kept.current.authority)
    if kept.previous_authority:
        return Kept(kept.current, now) if settled else None
    if kept.current.expires_at - now <= pace.renew_before:
        following = new_generation(names, now=now, lifetime=pace.lifetime)
        return Kept(kept.current, now, following=following)
    return None


def new_generation(names: Sequence[str], *, now: datetime, lifetime: timedelta) -> Generation:
    """Create a CA and a server certificate signed by it for `names`, which may be IP addresses."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kruise-probe authority")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    start, end = now - _BACKDATED, now + lifetime

    def builder(name: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return x509.CertificateBuilder(
            issuer_name=issuer,
            subject_name=name,
            public_key=public,
            serial_number=x509.random_serial_number(),
            not_valid_before=start,
            not_valid_after=end,
        )

    authority = (
        builder(issuer, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        builder(subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
        .add_extension(
            x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )
    return Generation(
        authority.public_bytes(serialization.Encoding.PEM),
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def to_data(kept: Kept) -> dict[str, str | None]:
    """Encode the Secret's data as a merge patch; removed keys are null."""
    following = kept.following or Generation(b"", b"", b"")
    texts = {
        "ca.crt": kept.bundle,
        "tls.crt": kept.current.certificate,
        "tls.key": kept.current.key,
        "own-ca.crt": kept.current.authority,
        "following-ca.crt": following.authority,
        "following.crt": following.certificate,
        "following.key": following.key,
        "previous-ca.crt": kept.previous_authority,
        _SINCE: format_micro_time(kept.since).encode(),
    }
    return {name: base64.b64encode(text).decode() if text else None for name, text in texts.items()}


def from_data(data: Mapping[str, str] | None) -> Kept | None:
    """Decode the Secret's data; None if it is empty or invalid."""
    try:
        texts = {name: base64.b64decode(text) for name, text in (data or {}).items()}
        since = parse_time(texts[_SINCE].decode())
        if since is None:
            return None
        kept = Kept(
            current=Generation(texts["own-ca.crt"], texts["tls.crt"], texts["tls.key"]),
            since=since,
            following=(
                Generation(
                    texts["following-ca.crt"], texts["following.crt"], texts["following.key"]
                )
                if texts.get("following.crt")
                else None
            ),
            previous_authority=texts.get("previous-ca.crt", b""),
        )
        for each in (kept.current, kept.following):
            if each:
                serialization.load_pem_private_key(each.key, None)
                _ = each.expires_at
    except (KeyError, ValueError, binascii.Error):
        return None
    return kept
