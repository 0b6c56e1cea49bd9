"""Benchmarks of `hack/bench`. Figures come from /proc, from the API server's own metrics and from watching the objects."""
