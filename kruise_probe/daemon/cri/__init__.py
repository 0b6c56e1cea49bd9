"""The node's container runtime: which containers run, since when, at which address; and commands in them.

Owns the Container Runtime Interface. Knows nothing of probes, markers or the API server.
"""
