"""A node of local processes: a kubelet, and a container runtime behind a real CRI socket.

Contains processes, their folders and addresses, and the status of the node's pods. Knows nothing of probes, markers or
results: manager and daemon use it like any other node.
"""
