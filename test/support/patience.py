"""The limit for conditions that a test waits for.

The limit only ends a test that would hang, so it is generous: machines differ by half and more, and are loaded. What
users are promised in seconds is measured by `hack/bench` and the long form of `hack/soak`.
"""

PATIENCE_SECONDS = 60.0
