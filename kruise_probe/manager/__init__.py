"""The manager of an operator: its controllers, leader election and process, as in controller-runtime.

This package is independent of any particular kind. `kruise_probe.runtime` has its public names.
"""
