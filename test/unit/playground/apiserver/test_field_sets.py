"""Sets of fields behave as sets of paths do."""

from hypothesis import given
from hypothesis import strategies as st

from kruise_probe_playground.apiserver.field_sets import FieldSet, difference, union

Path = tuple[str, ...]

names = st.sampled_from(["f:a", "f:b", 'k:{"type":"x"}', 'v:"y"'])
paths = st.lists(names, min_size=1, max_size=3).map(tuple)
path_sets = st.frozensets(paths, max_size=8)


def field_set(members: frozenset[Path]) -> FieldSet:
    """The `fieldsV1` form of a set of paths."""

    def below(prefix: Path) -> FieldSet:
        heads = {each[len(prefix)] for each in members if each[: len(prefix)] == prefix != each}
        found: FieldSet = {head: below((*prefix, head)) for head in heads}
        return {".": {}, **found} if found and prefix in members else found

    return below(())


def paths_of(fields: FieldSet, prefix: Path = ()) -> frozenset[Path]:
    found = set()
    for name, below in fields.items():
        if name == ".":
            found.add(prefix)
            continue
        where = (*prefix, name)
        if not below:
            found.add(where)
        found |= paths_of(below, where)
    return frozenset(found)


@given(path_sets)
def test_sets_have_the_form_of_fields_v1(members: frozenset[Path]) -> None:
    assert paths_of(field_set(members)) == members


@given(path_sets, path_sets)
def test_union_has_the_members_of_both(left: frozenset[Path], right: frozenset[Path]) -> None:
    assert union(field_set(left), field_set(right)) == field_set(left | right)


@given(path_sets, path_sets)
def test_difference_has_the_members_of_the_left_only(
    left: frozenset[Path], right: frozenset[Path]
) -> None:
    assert difference(field_set(left), field_set(right)) == field_set(left - right)


@given(path_sets, path_sets)
def test_operands_do_not_change(left: frozenset[Path], right: frozenset[Path]) -> None:
    one, other = field_set(left), field_set(right)
    union(one, other)
    difference(one, other)
    assert (one, other) == (field_set(left), field_set(right))
