"""The status and the finalizer of markers.

Counts and reports; decides nothing about nodes or pods.
"""
