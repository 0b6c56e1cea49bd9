"""Certificates of servers under test."""

from datetime import timedelta

from kruise_probe.api.times import utc_now
from kruise_probe.serving.certificates import IssuedCertificate, issue_certificate


def issued(*names: str, hours: int = 1) -> IssuedCertificate:
    """A new one for these names, by default `localhost`."""
    return issue_certificate(
        names or ["localhost"],
        now=utc_now(),
        lifetime=timedelta(hours=hours),
    )
