"""Runs one probe, once: a command in a container, or a request to the pod's own address.

Knows nothing of schedules, thresholds or results; whoever calls decides when, and what an answer changes.
"""
