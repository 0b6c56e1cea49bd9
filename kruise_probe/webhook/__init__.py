"""Admission webhook: the rules of `api.validation` for clusters whose CRDs have none, and the serverless annotations.

`validating`, `mutating` and `rotation` decide in pure functions. `server` serves, and `cert_rotator` or a loader of
files loads the certificate. Must not import controllers: the caller passes a function that returns markers.
"""
