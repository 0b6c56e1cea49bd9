"""Declared kinds: structs whose types are defined later, and untyped kinds that are declared twice."""

import pytest
from msgspec import Struct

from kruise_probe.api.declared import kind, resource_of, untyped
from kruise_probe.api.meta import ApiObject


@kind("example.com/v1")
class Ship(ApiObject, frozen=True):
    spec: "ShipSpec"


class ShipSpec(Struct, frozen=True):
    masts: int = 1


def test_a_declared_struct_may_name_types_that_are_defined_after_it() -> None:
    ship = resource_of(Ship).decode(b'{"metadata": {"name": "a"}, "spec": {"masts": 3}}')
    assert ship.spec.masts == 3


def test_an_untyped_kind_has_one_resource() -> None:
    assert untyped("example.com/v1", "Fish", "fish") is untyped("example.com/v1", "Fish", "fish")


@pytest.mark.parametrize(
    ("plural", "namespaced"),
    [
        pytest.param("", True, id="another-plural"),
        pytest.param("mice", False, id="another-scope"),
    ],
)
def test_an_untyped_kind_that_is_declared_differently_is_refused(
    plural: str, namespaced: bool
) -> None:
    untyped("example.com/v1", "Mouse", "mice")
    with pytest.raises(ValueError, match="Mouse was declared with plural 'mice'"):
        untyped("example.com/v1", "Mouse", plural, namespaced=namespaced)
