"""Addresses of pods."""

import pytest

from kruise_probe_playground.node.addresses import (
    PODS_PER_BLOCK,
    AddressBlock,
    NoAddress,
    hold_block,
)


def test_freed_address_is_reused_only_after_all_others() -> None:
    block = AddressBlock(10)
    first = block.take()
    block.give_back(first)
    others = [block.take() for _ in range(PODS_PER_BLOCK - 1)]
    assert first not in others
    assert block.take() == first
    with pytest.raises(NoAddress):
        block.take()


def test_reserved_block_is_not_shared() -> None:
    with hold_block() as one, hold_block() as other:
        assert one.node_ip != other.node_ip
