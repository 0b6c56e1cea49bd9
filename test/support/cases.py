"""Tables of tests."""

from typing import Any

import pytest


def cases(names: str, /, **rows: Any) -> pytest.MarkDecorator:
    """Parametrizes a test with arguments, named as in `"given expected"`; the name of each row is its id, with `-` for `_`."""
    return pytest.mark.parametrize(
        ",".join(names.split()),
        rows.values(),
        ids=[name.replace("_", "-") for name in rows],
    )
