"""Manifests of the install as plain values: CRDs, roles, workloads.

`hack/gen_config` writes `config/` from here, `kruise-probe manifests` prints them, and the playground installs them.
Does no I/O.
"""
