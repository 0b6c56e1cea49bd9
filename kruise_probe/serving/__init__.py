"""What a process says of itself: health, metrics, logs.

Owns the endpoints and the form of logs. Knows nothing of what is healthy: checks are handed in.
"""
