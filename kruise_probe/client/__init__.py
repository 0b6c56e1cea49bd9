"""The only door to the API server: configuration, requests, watches, events.

Owns what a request is, how long it may take, when it is sent again and what a refusal means. Knows
nothing of caches, queues or of what any object is for.
"""
