"""Wire types of Kubernetes and of `apps.kruise.io`, and their validation rules.

Owns field names, keys, time formats, errors and validation. Does no I/O and uses no asyncio.
"""
