"""The number of attempts that may have a socket at once, from the hard limit of open files."""

import resource

import pytest
from support.cases import cases

from kruise_probe.cli.daemon import socket_places


@cases(
    "hard places",
    of_a_shell=(4096, 4096 - 448),
    of_a_container=(1 << 20, 4096),
    unlimited=(resource.RLIM_INFINITY, 4096),
    small=(256, 64),
    tiny=(3, 1),
)
def test_attempts_share_the_open_files_up_to_a_limit(
    hard: int, places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: raised.append(limit))

    assert socket_places() == places
    assert raised == [(hard, hard)]
