"""Admission webhook: the rules of `api.validation` for clusters whose CRDs have none, and the serverless annotations.

`admission` decides in pure functions. `server` serves; its certificate comes from `cert_rotator` or from
files. Must not import controllers: the caller passes a function that returns markers.
"""
