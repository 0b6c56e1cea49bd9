"""The manager: what runs, in which order, and who leads. It knows nothing of probes."""
