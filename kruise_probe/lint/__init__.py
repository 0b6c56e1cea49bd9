"""Checks files of PodProbeMarkers without a cluster: YAML, fields, the rules of markers, and the pods that they select.

The rules are those of `api.validation` and of the CRD's schema. This package adds where in a file a field is written.
"""
