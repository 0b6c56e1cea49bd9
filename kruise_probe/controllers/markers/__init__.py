"""What a marker says of itself: its status, and its finalizer.

Counts and reports; decides nothing about nodes or pods.
"""
