"""Sizes of objects as etcd holds them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruise_probe.api.storage import stored_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        pytest.param("text", 4, id="plain"),
        pytest.param("<", 6, id="less"),
        pytest.param(">", 6, id="greater"),
        pytest.param("&", 6, id="ampersand"),
        pytest.param("\u2028", 6, id="line-separator"),
        pytest.param("\u2029", 6, id="paragraph-separator"),
        pytest.param("\u2027\u202a“…”", 15, id="beside-the-separators"),
        pytest.param('"', 2, id="quote"),
        pytest.param("\x01", 6, id="control"),
        pytest.param("\x7f", 1, id="delete"),
        pytest.param("grün 🙂", 10, id="umlaut-and-face"),
    ],
)
def test_stored_size_counts_escapes_of_go(text: str, size: int) -> None:
    assert stored_bytes(text) == size + len('""')


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("<>&\u2028"))))
def test_stored_size_is_additive(texts: list[str]) -> None:
    commas = max(len(texts) - 1, 0)

    assert stored_bytes(texts) == sum(map(stored_bytes, texts)) + commas + len("[]")
