"""Sends random histories to a server, and compares what remains of answers without identity, times and versions."""

from dataclasses import dataclass, field
from typing import Any

from contract.contract_api import Api, ApiResponse
from contract.contract_rows import normalised
from contract.history_steps import CLUSTER_SCOPED, HistoryStep
from support.wire import Json

METHODS = {"get": "GET", "list": "GET", "create": "POST", "update": "PUT", "patch": "PATCH"}


@dataclass
class HistoryClient:
    """Sends steps to one server and remembers what it has seen of each object.

    Attributes:
        since: the resource version at the beginning of the history.
        seen: the versions of each object, by its path.
    """

    api: Api
    since: str
    seen: dict[str, list[Json]] = field(default_factory=dict)

    def path(self, kind: str, name: str = "") -> str:
        return self.api.path(kind, self.name_of(kind, name) if name else "")

    def name_of(self, kind: str, name: str) -> str:
        return f"{self.api.namespace}-{name}" if kind in CLUSTER_SCOPED else name

    async def send(self, step: HistoryStep) -> Json:
        """The answer, normalised."""
        query = dict(step.query)
        if step.kind in CLUSTER_SCOPED and step.verb == "list":
            own = f"contract={self.api.unique}"
            query["labelSelector"] = ",".join(filter(None, (own, query.get("labelSelector"))))
        path = self.path(step.kind, "" if step.verb == "create" else step.name)
        body = self._body(
            step, self.seen.get(self.path(step.kind, step.name)) or [{"metadata": {}}]
        )
        answer = await self.api.send(
            METHODS.get(step.verb, "DELETE"),
            f"{path}/{step.subresource}" if step.subresource else path,
            _in_namespace(body, self.api.namespace),
            content_type=step.form,
            **query,
        )
        if step.name and answer.body.get("metadata", {}).get("uid"):
            self.seen.setdefault(self.path(step.kind, step.name), []).append(answer.body)
        return normal_answer(answer, self.api)

    def _body(self, step: HistoryStep, seen: list[Json]) -> Any:
        """What the step sends, with the name, the version and the uid that its client knows of the object."""
        if step.verb not in ("create", "update", "patch"):
            return step.body
        known = {"": {}, "current": seen[-1], "stale": seen[0]}[step.version]
        version = known.get("metadata", {}).get("resourceVersion")
        more: Json = {"resourceVersion": version} if version else {}
        if step.uid:
            right = seen[-1]["metadata"].get("uid", "none")
            more["uid"] = right if step.uid == "right" else "wrong"
        if step.verb == "patch":
            metadata = {**(step.body.get("metadata") or {}), **more}
            return {**step.body, "metadata": metadata} if more else step.body
        old = seen[-1] if step.verb == "update" else {}
        changed = {key: each for key, each in step.body.items() if each is not None}
        metadata = {**old.get("metadata", {}), **changed.get("metadata", {})}
        metadata["name"] = self.name_of(step.kind, step.name)
        metadata.pop("resourceVersion", None)
        if step.kind in CLUSTER_SCOPED:  # found by a label of the test, as it is in no namespace
            labels = {**(metadata.get("labels") or {}), "contract": self.api.unique}
            metadata["labels"] = labels
        return {**old, **changed, "metadata": {**metadata, **more}}


def _in_namespace(body: Any, namespace: str) -> Any:
    if isinstance(body, dict):
        return {key: _in_namespace(each, namespace) for key, each in body.items()}
    return namespace if body == "{ns}" else body


def normal_answer(answer: ApiResponse, api: Api) -> Json:
    """Without what differs between any two servers, and without sentences."""
    body = answer.body
    if body.get("kind") == "Status" and body.get("status") == "Failure":
        details = body.get("details") or {}
        causes = {(each.get("reason"), each.get("field")) for each in details.get("causes", ())}
        causes.discard(("FieldValueInvalid", "<nil>"))  # "some validation rules were not checked"
        kept = {key: details.get(key) for key in ("name", "group", "kind")}
        body = {"reason": body.get("reason"), **kept, "causes": sorted(map(str, causes))}
    return {"code": answer.code, "body": normalised(body, api)}
