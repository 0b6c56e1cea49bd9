"""The HTTP server of a process, with TLS, health endpoints and metrics; its logs and signals.

The caller passes in the health checks.
"""
