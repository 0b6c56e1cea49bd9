"""Custom pod probes for Kubernetes: a manager, a node daemon, and the commands around them."""

__version__ = "0.1.0"
"""The one place that states it: `hack/release --prepare` changes it, and a release's tag must be equal to it."""
