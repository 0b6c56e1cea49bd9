"""Issues certificates: a CA, and one certificate that it signed. The CA's key is discarded, so it cannot be stolen.

As a program it prints a certificate and its key in PEM. The daemon runs it, because importing `cryptography` takes 10 MB.

Source: cert-controller (open-policy-agent) pkg/rotator (CreateCACert, CreateCertPEM).
Differs: each certificate has a CA of its own.
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
    """A certificate with its key, and the CA that signed it, in PEM."""

    authority: bytes
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
    names: Sequence[str], *, now: datetime, lifetime: timedelta, for_client: bool = False
) -> IssuedCertificate:
    """Create a CA, and a certificate signed by it for `names`, which may be IP addresses.

    The certificate is for a server, or for a client if `for_client` is true.
    """
    authority_key = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kruise-probe authority")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    usage = ExtendedKeyUsageOID.CLIENT_AUTH if for_client else ExtendedKeyUsageOID.SERVER_AUTH

    def signed(
        name: x509.Name, public: ec.EllipticCurvePublicKey, *extensions: x509.ExtensionType
    ) -> bytes:
        is_authority = name == issuer
        builder = x509.CertificateBuilder(
            issuer_name=issuer,
            subject_name=name,
            public_key=public,
            serial_number=x509.random_serial_number(),
            not_valid_before=now - _BACKDATED,
            not_valid_after=now + lifetime,
        )
        constraints = x509.BasicConstraints(is_authority, 0 if is_authority else None)
        builder = builder.add_extension(constraints, critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=is_authority), critical=True)
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(authority_key, hashes.SHA256()).public_bytes(_PEM)

    authority = authority_key.public_key()
    return IssuedCertificate(
        signed(issuer, authority, x509.SubjectKeyIdentifier.from_public_key(authority)),
        signed(
            subject,
            key.public_key(),
            x509.ExtendedKeyUsage([usage]),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority),
            x509.SubjectAlternativeName([_general_name(name) for name in names]),
        ),
        key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
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


def main() -> None:
    """Print a server certificate of ten years, longer than any process runs, and its key."""
    issued = issue_certificate(["kruise-probe"], now=utc_now(), lifetime=timedelta(days=3650))
    sys.stdout.buffer.write(issued.certificate + issued.key)


if __name__ == "__main__":
    main()
