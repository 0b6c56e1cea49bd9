"""Random histories of requests to an API server: which steps there are, and what they send.

A step is data: it names objects by letters, and versions and uids by what a client would know of them, so that the same step
can be sent to two servers. Most bodies are valid, so that most steps find an object to change.
"""

import time
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any

from contract.contract_api import DATA, JSON, MERGE, STRATEGIC
from support.tables import load_table
from support.wire import Json, typed

Query = tuple[tuple[str, str], ...]
NAMES = ("a", "b")
CUSTOM = ("podprobemarkers", "nodepodprobes")
CLUSTER_SCOPED = ("nodepodprobes",)
KINDS = ("pods", "leases", "events", *CUSTOM)
"""Without nodes and ReplicaSets, which controllers of the real cluster change."""
SENTINELS: tuple[Json, ...] = ({"l": "x"}, {})
STEPS = 20
"""Of a history, after its creations."""
FORMS = (MERGE, STRATEGIC)
UNUSUAL = 0.1
"""The share of unusual values."""


@dataclass(frozen=True)
class HistoryStep:
    """One request.

    Attributes:
        version: the resourceVersion that the body has: "" for none, or `current` or `stale`.
        uid: the same for the uid: `right` or `wrong`.
    """

    verb: str
    kind: str
    name: str = ""
    body: Any = None
    form: str = JSON
    query: Query = ()
    subresource: str = ""
    version: str = ""
    uid: str = ""

    def __repr__(self) -> str:
        path = f"{self.kind}/{self.name}/{self.subresource}".rstrip("/")
        text = f"{self.verb} {path}"
        if self.query:
            text += f" {dict(self.query)}"
        if self.body is not None:
            text += f" {self.form} {self.body}"
        if self.version:
            text += f" version={self.version}"
        if self.uid:
            text += f" uid={self.uid}"
        return text


VALUES: Json = load_table(DATA / "histories.yaml", {})
HEADS: dict[str, Json] = {
    "leases": typed("Lease"),
    "podprobemarkers": typed("PodProbeMarker"),
    "nodepodprobes": typed("NodePodProbe"),
}
VERBS = ("patch", "patch", "patch", "patch", "update", "update", "create", "get", "list", "delete")


class HistoryMaker:
    """Makes one history, by its seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._node = f"nowhere-{int(time.monotonic())}-{seed}"
        """Does not exist. Kubernetes deletes the pods of a Node that it has missed for 40 s (podgc)."""

    def history(self) -> list[HistoryStep]:
        """Steps on one or two kinds; they begin with creations, so that most of them find an object."""
        kinds = self._random.sample(
            KINDS,
            self._random.choice((1, 2)),
        )
        steps = [self._step("create", kind, name) for kind, name in product(kinds, NAMES)]
        for verb in self._random.choices(VERBS, k=STEPS):
            kind = self._random.choice(kinds)
            name = self._random.choice(NAMES)
            steps.append(self._step(verb, kind, name))
        return steps

    def _step(self, verb: str, kind: str, name: str) -> HistoryStep:
        if verb == "get":
            return HistoryStep(verb, kind, name)
        if verb == "list":
            return HistoryStep(
                verb,
                kind,
                query=self._query("labelSelector", "fieldSelector"),
            )
        if verb == "delete":
            grace = self._random.choice([(), (), (("gracePeriodSeconds", "0"),)])
            return HistoryStep(
                verb,
                kind,
                name,
                self._one(VALUES["deleteOptions"]),
                query=grace,
            )
        writing = self._random.choice([(), (("fieldManager", "a"),), (("fieldManager", "b"),)])
        writing += self._query("fieldValidation")
        if verb == "create":
            fields = VALUES["kinds"][kind]
            body = {key: self._one(values) for key, values in fields.items()}
            body |= HEADS.get(kind, {})
            body["metadata"] = self._some(VALUES["metadata"])
            return HistoryStep(verb, kind, name, body, query=writing)
        return self._change(verb, kind, name, writing)

    def _change(self, verb: str, kind: str, name: str, query: Query) -> HistoryStep:
        form = JSON
        uid = ""
        # A real server creates a Lease or an Event that an update does not find.
        if verb == "patch" or kind in ("leases", "events"):
            verb = "patch"
            uid = self._one({"usual": ["", "right"], "unusual": ["wrong"]})
            form = self._random.choice(FORMS)
            if kind in CUSTOM:
                form = self._one({"usual": [MERGE], "unusual": [STRATEGIC]})
        parts = ["", "status"] if "status" in VALUES["kinds"][kind] else [""]
        subresource = self._random.choice(parts)
        version = self._random.choice(["", "", "current", "stale"])
        body = self._changes(kind)
        return HistoryStep(verb, kind, name, body, form, query, subresource, version, uid)

    def _changes(self, kind: str) -> Json:
        """A merge patch; null removes a part, but the object of an event is in the event's namespace."""
        changed = self._some({"metadata": {"usual": [{}]}, **VALUES["kinds"][kind]})
        if "metadata" in changed:
            changed["metadata"] = self._some(VALUES["metadata"])
        for key in changed:
            if key != "involvedObject" and self._random.random() < UNUSUAL:
                changed[key] = None
        return changed

    def _query(self, *names: str) -> Query:
        """The parameters of these names, without those that are empty."""
        values = [(name, self._one(VALUES[name])) for name in names]
        return tuple(parameter for parameter in values if parameter[1])

    def _one(self, values: Json) -> Any:
        """One of the usual values, or rarely of the unusual ones."""
        chosen = values["usual"]
        if "unusual" in values and self._random.random() < UNUSUAL:
            chosen = values["unusual"]
        return self._filled(self._random.choice(chosen))

    def _some(self, fields: Json) -> Json:
        """An object with one of these fields, or with any number of them."""
        names = [self._random.choice(list(fields))]
        if self._random.random() < 0.4:
            names = [name for name in fields if self._random.random() < 0.5]
        return {name: self._one(fields[name]) for name in names}

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict) and value.get("nodeName"):
            return {**value, "nodeName": self._node}
        return value
