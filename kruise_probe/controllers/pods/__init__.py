"""Results on pods: conditions, labels and annotations.

Writes only what markers name, and removes only what this project wrote; knows nothing of how results came about.
"""
