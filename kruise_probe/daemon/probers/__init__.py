"""Runs one attempt of a probe: a command in a container, or a request to the pod's IP.

The caller owns the schedule, the thresholds and the stored results.
"""
