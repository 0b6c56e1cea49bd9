"""Local copies of the objects of one kind: kept equal to the server's, indexed, and followed by handlers.

Owns the conversation of list and watch and its failures. Knows nothing of HTTP, nor of any kind in
particular.
"""
