"""The API server client: configuration, requests and watches.

All access to the API server goes through this package. It owns requests, their deadlines and retries,
and the mapping of error responses to exceptions. It is independent of caches, queues and controllers.
"""
