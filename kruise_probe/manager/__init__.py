"""The manager: what runs, in which order, who leads, and what is recorded as an event. It knows nothing of probes."""
