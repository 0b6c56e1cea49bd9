"""The manager: reconcilers over shared caches, and what runs them.

Owns every decision about NodePodProbe specs, marks on pods and the status of markers. Knows the API server
only through `client` and `informers`, and nothing of containers or of how a probe runs.
"""
