"""A CA and a client's certificate that it signed, as files: what an API server shows to a webhook."""

from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kruise_probe.api.times import utc_now


class ClientCertificate(NamedTuple):
    """PEM files; `pair` is the certificate and its key."""

    authority: Path
    pair: Path


def client_certificate(folder: Path, name: str) -> ClientCertificate:
    """A CA of its own, `name`, and a certificate for client authentication."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
    ca = x509.BasicConstraints(ca=True, path_length=0)
    authority = _builder(issuer, issuer, authority_key).add_extension(ca, critical=True)
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    certificate = _builder(issuer, subject, key).add_extension(usage, critical=False)
    pem = serialization.Encoding.PEM
    files = ClientCertificate(folder / f"{name}-ca.crt", folder / f"{name}-client.pem")
    files.authority.write_bytes(authority.sign(authority_key, hashes.SHA256()).public_bytes(pem))
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    files.pair.write_bytes(
        certificate.sign(authority_key, hashes.SHA256()).public_bytes(pem) + private
    )
    return files


def _builder(
    issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=utc_now() - timedelta(hours=1),
        not_valid_after=utc_now() + timedelta(hours=1),
    )
