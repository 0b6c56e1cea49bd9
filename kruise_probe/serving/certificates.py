"""Issues certificates that sign themselves, so there is no key of a CA that could be stolen.

As a program it prints a certificate and its key in PEM. The daemon runs it, because importing `cryptography` takes 10 MB.

Source: cert-controller (open-policy-agent) pkg/rotator (CreateCACert, CreateCertPEM).
Differs: no CA.
"""

import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kruise_probe.api.times import utc_now

_BACKDATED: Final = timedelta(minutes=5)
"""Tolerance for peers whose clock is behind."""
_PEM: Final = serialization.Encoding.PEM


class IssuedCertificate(NamedTuple):
    """A certificate and its key in PEM. Clients trust the certificate itself."""

    certificate: bytes
    key: bytes

    def check(self) -> None:
        """Check the parts.

        Raises:
            ValueError: the certificate or its key is malformed.
        """
        serialization.load_pem_private_key(self.key, None)
        expires_at(self.certificate)

    @property
    def expires_at(self) -> datetime:
        return expires_at(self.certificate)

    @property
    def names(self) -> frozenset[str]:
        certificate = x509.load_pem_x509_certificate(self.certificate)
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        return frozenset(extension.value.get_values_for_type(x509.DNSName))


def expires_at(certificate: bytes) -> datetime:
    """Return when a certificate in PEM expires.

    Raises:
        ValueError: `certificate` is not a certificate in PEM.
    """
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def issue_certificate(
    names: Sequence[str], *, now: datetime, lifetime: timedelta
) -> IssuedCertificate:
    """Create a certificate of a server with these names, which may be IP addresses. It can sign no other."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    builder = x509.CertificateBuilder(
        issuer_name=name,
        subject_name=name,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - _BACKDATED,
        not_valid_after=now + lifetime,
    )
    builder = builder.add_extension(
        x509.BasicConstraints(ca=False, path_length=None), critical=True
    )
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    alternatives = x509.SubjectAlternativeName(list(map(_general_name, names)))
    for extension in (usage, alternatives):
        builder = builder.add_extension(extension, critical=False)
    return IssuedCertificate(
        builder.sign(key, hashes.SHA256()).public_bytes(_PEM),
        key.private_bytes(
            _PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def main() -> None:
    """Print a server certificate of ten years, longer than any process runs, and its key."""
    issued = issue_certificate(
        ["kruise-probe"],
        now=utc_now(),
        lifetime=timedelta(days=3650),
    )
    sys.stdout.buffer.write(issued.certificate + issued.key)


if __name__ == "__main__":
    main()
