"""The node's container runtime: state, start time and IPs of its containers, and commands in them.

Owns the Container Runtime Interface (CRI). Does not depend on probes, markers or the API server.
"""
