"""Order of resource versions.

Source: Kubernetes API concepts, "Resource versions" (comparable since 1.35; numbers of one sequence in
every release before); apimachinery pkg/util/resourceversion.
Differs: a version that is no number compares as unknown, never as an error.
"""


def is_older(version: str, than: str) -> bool:
    """True if both are numbers and `version` is the lower one."""
    try:
        return int(version) < int(than)
    except ValueError:
        return False
