"""Admission webhook: the rules of `api.validation` for clusters whose CRDs have none, and the serverless annotations.

`judging` and `annotating` decide in pure functions, `server` serves, and `keeper` maintains the certificates.
Must not import controllers: the caller passes a function that returns markers.
"""
