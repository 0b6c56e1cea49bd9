"""The store: history, versions, watchers."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruise_probe.api.keys import NamespacedName
from kruise_probe_playground.apiserver import store as store_module
from kruise_probe_playground.apiserver.selecting import parse_fields, parse_labels
from kruise_probe_playground.apiserver.store import Change, Collection, Scope, Stored, Watcher

KNOWN = frozenset({"metadata.name", "spec.nodeName"})


def stored(name: str, revision: int, *, app: str = "", node: str = "") -> Stored:
    labels = {"app": app} if app else {}
    fields = {"metadata.name": name, "spec.nodeName": node}
    return Stored(NamespacedName("ns", name), name, revision, b"{}", labels, fields)


class Writer:
    """Writes to a collection and remembers every state that it had."""

    def __init__(self) -> None:
        self.collection = Collection()
        self.revision = 1
        self.states: dict[int, dict[NamespacedName, Stored]] = {1: {}}

    def write(self, name: str, *, app: str = "", node: str = "") -> Change:
        key = NamespacedName("ns", name)
        self.revision += 1
        new = stored(name, self.revision, app=app, node=node)
        change = Change(self.revision, self.collection.objects.get(key), new, removed=False)
        return self._record(change)

    def remove(self, name: str) -> Change | None:
        old = self.collection.objects.get(NamespacedName("ns", name))
        if old is None:
            return None
        self.revision += 1
        last = old._replace(revision=self.revision)
        return self._record(Change(self.revision, old, last, removed=True))

    def _record(self, change: Change) -> Change:
        self.collection.record(change)
        self.states[self.revision] = dict(self.collection.objects)
        return change


names = st.sampled_from(["a", "a-b", "a.b", "b"])
steps = st.lists(st.tuples(names, st.booleans()), max_size=25)


def written(history: list[tuple[str, bool]]) -> Writer:
    writer = Writer()
    for name, removing in history:
        if removing:
            writer.remove(name)
        else:
            writer.write(name)
    return writer


@given(steps)
def test_every_version_of_the_history_can_be_listed(history: list[tuple[str, bool]]) -> None:
    writer = written(history)
    for revision, state in writer.states.items():
        listed = list(writer.collection.ordered_at(revision))
        assert listed == [state[key] for key in sorted(state, key=str)]


@given(steps)
def test_changes_after_a_version_lead_to_the_current_state(
    history: list[tuple[str, bool]],
) -> None:
    writer = written(history)
    for revision, state in writer.states.items():
        replayed = dict(state)
        for change in writer.collection.changes_after(revision):
            assert replayed.get(change.new.key) == change.old
            if change.removed:
                del replayed[change.new.key]
            else:
                replayed[change.new.key] = change.new
        assert replayed == writer.collection.objects


@given(steps, names)
def test_page_starts_after_its_key(history: list[tuple[str, bool]], after: str) -> None:
    writer = written(history)
    key = f"ns/{after}"
    whole = [each for each in writer.collection.ordered() if str(each.key) > key]
    assert list(writer.collection.ordered(key)) == whole
    assert list(writer.collection.ordered_at(writer.revision - 1, key)) == [
        each for each in writer.collection.ordered_at(writer.revision - 1) if str(each.key) > key
    ]


@pytest.fixture
def short_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "HISTORY_CHANGES", 3)


@pytest.mark.usefixtures("short_history")
def test_history_is_bounded_and_has_a_floor() -> None:
    writer = Writer()
    for _ in range(10):
        writer.write("a")
    assert writer.collection.floor == writer.revision - 3
    assert len(writer.collection.changes_after(writer.collection.floor)) == 3


def test_history_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "HISTORY_BYTES", 7)
    writer = Writer()
    for _ in range(10):
        writer.write("a")
    assert len(writer.collection.changes_after(0)) == 3


def taken(watcher: Watcher) -> list[str]:
    return [each.new.key.name for each in watcher.take()]


async def test_watcher_gets_changes_after_its_start() -> None:
    writer = Writer()
    writer.write("a")
    watcher = writer.collection.watch(Scope())
    writer.write("b")
    await watcher.wait()
    assert taken(watcher) == ["b"]
    assert taken(watcher) == []


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param("metadata.name=a", ["a"], id="by-name"),
        pytest.param("spec.nodeName=n1", ["a", "b"], id="by-node"),
        pytest.param("spec.nodeName!=n1", ["a", "b"], id="by-exclusion-hears-all"),
    ],
)
async def test_watcher_with_an_exact_field_gets_no_other_changes(
    selector: str, expected: list[str]
) -> None:
    writer = Writer()
    watcher = writer.collection.watch(Scope(fields=parse_fields(selector, KNOWN)))
    writer.write("a", node="n1")
    writer.write("b", node="n1" if "nodeName" in selector else "n2")
    assert taken(watcher) == expected


async def test_watcher_of_a_node_gets_a_pod_that_leaves_it() -> None:
    writer = Writer()
    writer.write("a", node="n1")
    watcher = writer.collection.watch(Scope(fields=parse_fields("spec.nodeName=n1", KNOWN)))
    writer.write("a", node="n2")
    assert taken(watcher) == ["a"]


async def test_removed_watcher_gets_nothing() -> None:
    writer = Writer()
    scope = Scope(fields=parse_fields("metadata.name=a", KNOWN))
    watcher = writer.collection.watch(scope)
    writer.collection.unwatch(watcher)
    writer.write("a")
    assert taken(watcher) == []


async def test_watcher_with_a_full_backlog_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "WATCHER_BACKLOG", 2)
    writer = Writer()
    watcher = writer.collection.watch(Scope())
    for _ in range(3):
        writer.write("a")
    async with asyncio.timeout(1):
        await watcher.wait()
    assert watcher.closed


def test_scope_selects_by_namespace_labels_and_fields() -> None:
    one = stored("a", 1, app="x", node="n")
    assert Scope("ns", parse_labels("app=x"), parse_fields("spec.nodeName=n", KNOWN)).matches(one)
    assert not Scope("other").matches(one)
    assert not Scope(labels=parse_labels("app=y")).matches(one)
    assert not Scope(fields=parse_fields("spec.nodeName=m", KNOWN)).matches(one)
