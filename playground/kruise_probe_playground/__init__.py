"""`kruise-probe playground`: the product on one machine, without a cluster.

Contains the embedded API server, the embedded node, and the command that runs them with the real manager and the real
daemon. It may import every layer of the product that it wires; the product never imports it.
"""
