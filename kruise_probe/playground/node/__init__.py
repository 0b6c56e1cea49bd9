"""One node made of local processes: a kubelet, and a container runtime behind a real CRI socket.

Owns processes, their folders and addresses, and the status of the pods of its node. Knows nothing of
probes, markers or results: manager and daemon meet it as they meet any node.
"""
