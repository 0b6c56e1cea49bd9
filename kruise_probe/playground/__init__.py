"""The whole product in one command, on one machine, without a cluster.

Owns the embedded API server, the embedded node, and the command that runs them with the real manager and
the real daemon. It may import every layer that it wires; nothing but the command line imports it.
"""
