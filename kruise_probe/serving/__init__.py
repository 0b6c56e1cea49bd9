"""Health endpoints, metrics and logs of a process.

Owns the endpoints and the log format. Health checks are passed in by the caller.
"""
