"""Order of resource versions.

Source: Kubernetes API concepts, "Resource versions" (comparable since 1.35; numbers of one sequence in
every release before); apimachinery pkg/util/resourceversion.
Differs: a version that is not a number is never older, instead of an error.
"""


def is_older(version: str, than: str) -> bool:
    """Return True if both are numbers and `version` is lower than `than`."""
    try:
        return int(version) < int(than)
    except ValueError:
        return False
