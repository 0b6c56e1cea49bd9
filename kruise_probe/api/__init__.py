"""Wire types of Kubernetes and of `apps.kruise.io`, and the rules about them.

Owns what crosses the wire: field names, keys, times, errors, validation. Knows no I/O and no asyncio.
"""
