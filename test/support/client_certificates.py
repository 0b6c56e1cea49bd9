"""A CA and a client certificate that it signed, as files: an API server presents it to a webhook."""

from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from kruise_probe.api.times import utc_now
from kruise_probe.serving.certificates import issue_certificate


class ClientCertificate(NamedTuple):
    """PEM files; `pair` is the certificate and its key."""

    authority: Path
    pair: Path


def client_certificate(folder: Path, name: str) -> ClientCertificate:
    """A certificate for client authentication, signed by a CA of its own."""
    issued = issue_certificate(
        ["kube-apiserver"], now=utc_now(), lifetime=timedelta(hours=1), for_client=True
    )
    files = ClientCertificate(folder / f"{name}-ca.crt", folder / f"{name}-client.pem")
    files.authority.write_bytes(issued.authority)
    files.pair.write_bytes(issued.certificate + issued.key)
    return files
