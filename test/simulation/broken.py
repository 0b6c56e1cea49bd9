"""Ways to break the product, so that an oracle must notice it."""

from collections.abc import Callable
from typing import Any

import pytest

Break = Callable[[pytest.MonkeyPatch], None]


def replace(owner: Any, name: str, value: Any) -> Break:
    return lambda monkeypatch: monkeypatch.setattr(owner, name, value)


def returning(value: Any) -> Callable[..., Any]:
    return lambda *arguments, **options: value
