"""What people read about commands and selectors: as text, what is wrong with them, and what to write instead.

Pure. Lint finds the same mistakes in files as `status` and `explain` in a cluster.
"""
