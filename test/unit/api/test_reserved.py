"""Reserved keys; `support.marker_table` checks CEL and the webhook with the same keys."""

import pytest

from kruise_probe.api.reserved import (
    ANNOTATIONS,
    CONDITIONS,
    LABELS,
    ReservedKeys,
    reserved_annotation_error,
    reserved_label_error,
)

ROW = ReservedKeys(
    "is taken",
    keys=("plain",),
    prefixes=("config.example.com/a.",),
    domains=("example.org",),
    exceptions=("free.example.org",),
)


@pytest.mark.parametrize(
    ("key", "covered"),
    [
        ("plain", True),
        ("plain2", False),
        ("example.com/plain", False),
        ("config.example.com/a.b", True),
        ("config.example.com/a", False),
        ("example.org/x", True),
        ("a.b.example.org/x", True),
        ("free.example.org/x", False),
        ("sub.free.example.org/x", True),
        ("notexample.org/x", False),
        ("example.org.example.com/x", False),
        ("example.org", False),
        ("example.com/example.org/x", False),
    ],
)
def test_row_covers_keys_prefixes_and_domains(key: str, covered: bool) -> None:
    assert ROW.covers(key) is covered


def test_reserved_key_error_has_reason_and_remedy() -> None:
    assert reserved_label_error("pod-template-hash") == (
        "is reserved: controllers identify their pods and revisions by it; use a key of your own, "
        "such as example.com/healthy, or ask an administrator to allow it with --allowed-label-keys"
    )


def test_allowed_label_key_exempts_only_itself() -> None:
    allowed = frozenset({"topology.kubernetes.io/zone"})

    assert reserved_label_error("topology.kubernetes.io/zone", allowed) is None
    assert reserved_label_error("topology.kubernetes.io/region", allowed)


def test_reserved_labels_are_allowed_as_annotations() -> None:
    assert reserved_annotation_error("controller.kubernetes.io/pod-deletion-cost") is None
    assert reserved_annotation_error("pod-template-hash") is None


@pytest.mark.parametrize("row", [*LABELS, *ANNOTATIONS, *CONDITIONS])
def test_every_row_has_a_reason_and_keys(row: ReservedKeys) -> None:
    assert row.reason
    assert row.keys or row.prefixes or row.domains
