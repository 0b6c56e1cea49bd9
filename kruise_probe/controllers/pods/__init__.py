"""Results on pods: conditions, labels and annotations.

Writes only what markers name, and removes only what this project wrote. Does not know how probes run.
"""
