"""Custom pod probes for Kubernetes: a manager, a node daemon, and the commands around them."""
