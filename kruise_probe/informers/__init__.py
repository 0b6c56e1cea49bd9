"""Informers: indexed local caches of one kind's objects, with event handlers.

This package owns list and watch, and the handling of their failures. It is independent of HTTP and of
any particular kind.
"""
