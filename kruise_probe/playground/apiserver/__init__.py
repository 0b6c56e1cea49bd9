"""A Kubernetes API server for the resources involved, in memory and in process: the project's fake of the real one.

Owns HTTP, storage and the rules of writing; knows nothing of nodes, containers or probes. Held to a real
kube-apiserver by the contract suite.
"""
