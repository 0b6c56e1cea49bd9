"""What manager and daemon share: the process, its log and its events. It knows nothing of probes."""
