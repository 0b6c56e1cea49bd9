"""A Kubernetes API server in memory: the project's fake of kube-apiserver.

Contains HTTP, storage and the rules for writes. Knows nothing of nodes, containers or probes: custom resources are
given to it as definitions and validators. The contract suite runs against it and against a real kube-apiserver.
A request that cannot be served raises `Failure` in any module; the frontend sends its metav1.Status.
"""
