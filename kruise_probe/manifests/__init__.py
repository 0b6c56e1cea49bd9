"""What is installed in a cluster, as plain values: CRDs, roles, workloads.

One source: `hack/gen_config` writes `config/` from here, `kruise-probe manifests` prints it, the playground
installs it. Knows no I/O.
"""
