"""Replays the inputs that the fuzzer found (hack/fuzz), each of which once reached new code."""

import pytest
from support.fuzz_targets import TARGETS, read_corpus


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_of_the_corpus_breaks_its_parser(name: str) -> None:
    inputs = read_corpus(name)
    assert inputs, f"no corpus for {name}; run hack/fuzz {name}"
    for data in inputs:
        try:
            TARGETS[name](data)
        except Exception as error:
            raise AssertionError(f"{data!r} breaks {name}") from error
