"""The table of keys that no policy may write; `support.marker_table` holds CEL and the webhook to the same keys."""

import pytest

from kruise_probe.api.reserved import (
    ANNOTATIONS,
    CONDITIONS,
    LABELS,
    Reserved,
    annotation_reserved,
    label_reserved,
)

ROW = Reserved(
    "is taken",
    keys=("plain",),
    prefixes=("config.example.com/a.",),
    domains=("example.org",),
    but=("free.example.org",),
)


@pytest.mark.parametrize(
    ("key", "held"),
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
def test_row_covers_keys_prefixes_and_domains(key: str, held: bool) -> None:
    assert ROW.holds(key) is held


def test_reserved_key_error_has_reason_and_remedy() -> None:
    assert label_reserved("pod-template-hash") == (
        "tells a controller which pods are its own and of which revision; use a key of your own, "
        "such as example.com/healthy, or let an administrator allow it (--allowed-label-keys)"
    )


def test_allowed_label_key_exempts_only_itself() -> None:
    allowed = frozenset({"topology.kubernetes.io/zone"})

    assert label_reserved("topology.kubernetes.io/zone", allowed) is None
    assert label_reserved("topology.kubernetes.io/region", allowed)


def test_reserved_labels_are_allowed_as_annotations() -> None:
    assert annotation_reserved("controller.kubernetes.io/pod-deletion-cost") is None
    assert annotation_reserved("pod-template-hash") is None


@pytest.mark.parametrize("row", [*LABELS, *ANNOTATIONS, *CONDITIONS])
def test_every_row_has_a_reason_and_keys(row: Reserved) -> None:
    assert row.reason
    assert row.keys or row.prefixes or row.domains
