"""Admission: the rules of `api.validation` for clusters whose CRDs carry none, and the serverless annotations.

Decides in pure functions (`judging`, `annotating`), serves in `server`, and keeps certificates of its own in `keeper`.
Must not know controllers: markers come in as a function.
"""
