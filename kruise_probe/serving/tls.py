"""A certificate and its key as bytes, loaded into a TLS context."""

import os
import ssl


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Loads both; handshakes from now on use them.

    ssl reads files only, and the root file system is read-only: the file is one in memory.

    Raises:
        ssl.SSLError: they do not belong together, or are malformed.
    """
    descriptor = os.memfd_create("certificate")
    try:
        os.write(descriptor, certificate + key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
