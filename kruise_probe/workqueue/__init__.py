"""Queues of keys, and the one loop that works them off.

Owns which key is worked on when: never twice at once, never lost, urgent ones first. Keys are any
hashable values; what they mean is the caller's business.
"""
