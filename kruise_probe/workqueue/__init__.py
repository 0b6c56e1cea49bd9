"""Work queues, and the controller that processes them.

A key is never processed twice at once, is never lost, and urgent keys go first. A key is any
hashable value; only the caller knows what it means.
"""
