"""The manager and its leader election, controllers and process: controller-runtime's upper half.

This package is independent of any particular kind. `kruise_probe.runtime` has its public names.
"""
