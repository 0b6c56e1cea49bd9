"""Load a certificate and key from bytes into a TLS context."""

import os
import ssl


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load the pair; later handshakes use it.

    ssl reads files only and the root file system is read-only, so this writes the pair to a memory file.

    Raises:
        ssl.SSLError: certificate and key do not match, or are malformed.
    """
    descriptor = os.memfd_create("certificate")
    try:
        os.write(descriptor, certificate + key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
