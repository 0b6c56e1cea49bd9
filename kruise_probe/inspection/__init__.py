"""The logic of `status`, `explain` and `try`: computes views from objects.

Reads no objects and prints no views; only `trials` and `forwarding` do I/O. The desired state comes from the
controllers' own decision functions, and attempts from the daemon's probers, so the output matches what manager and
daemon do.
"""
