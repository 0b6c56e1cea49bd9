"""Custom pod probes for Kubernetes: a manager, a node daemon, and the playground that runs both."""
