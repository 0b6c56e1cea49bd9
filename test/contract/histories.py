"""Sends random histories to a server, and compares what remains of answers without identity, times and versions."""

from dataclasses import dataclass, field
from typing import Any

from contract.contract_api import Api, ApiResponse
from contract.contract_rows import normalised
from contract.history_steps import CLUSTER_SCOPED, HistoryStep
from support.wire import Json

METHODS = {
    "get": "GET",
    "list": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
}


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
        return self.api.path(
            kind,
            self.name_of(kind, name) if name else "",
        )

    def name_of(self, kind: str, name: str) -> str:
        return f"{self.api.namespace}-{name}" if kind in CLUSTER_SCOPED else name

    def selector(self, kind: str, labels: str) -> str:
        """A label selector. For cluster-scoped kinds it also requires the test's own label."""
        if kind not in CLUSTER_SCOPED:
            return labels
        own = f"contract={self.api.unique}"
        return f"{own},{labels}" if labels else own

    async def send(self, step: HistoryStep) -> Json:
        """The answer, normalised."""
        query = dict(step.query)
        if step.kind in CLUSTER_SCOPED and step.verb == "list":
            query["labelSelector"] = self.selector(
                step.kind,
                query.get("labelSelector", ""),
            )
        own_path = self.path(step.kind, step.name)
        path = self.path(step.kind) if step.verb == "create" else own_path
        if step.subresource:
            path += f"/{step.subresource}"
        body = self._body(
            step,
            self.seen.get(own_path) or [{"metadata": {}}],
        )
        answer = await self.api.send(
            METHODS.get(step.verb, "DELETE"),
            path,
            _in_namespace(body, self.api.namespace),
            content_type=step.form,
            **query,
        )
        if step.name and answer.body.get("metadata", {}).get("uid"):
            self.seen.setdefault(own_path, []).append(answer.body)
        return normal_answer(answer, self.api)

    def _body(self, step: HistoryStep, seen: list[Json]) -> Any:
        """What the step sends, with the name, the version and the uid that its client knows of the object."""
        if step.verb not in ("create", "update", "patch"):
            return step.body
        known = _preconditions(step, seen)
        if step.verb == "patch":
            if not known:
                return step.body
            metadata = step.body.get("metadata") or {}
            return {**step.body, "metadata": {**metadata, **known}}
        old = seen[-1] if step.verb == "update" else {}
        changed = {key: value for key, value in step.body.items() if value is not None}
        metadata = {
            **old.get("metadata", {}),
            **changed.get("metadata", {}),
        }
        metadata["name"] = self.name_of(step.kind, step.name)
        metadata.pop("resourceVersion", None)
        if step.kind in CLUSTER_SCOPED:  # found by a label of the test, as it is in no namespace
            labels = metadata.get("labels") or {}
            metadata["labels"] = {**labels, "contract": self.api.unique}
        return {**old, **changed, "metadata": {**metadata, **known}}


def _preconditions(step: HistoryStep, seen: list[Json]) -> Json:
    """The resourceVersion and the uid of the step's body."""
    found: Json = {}
    if step.version:
        known = seen[-1] if step.version == "current" else seen[0]
        version = known["metadata"].get("resourceVersion")
        if version:
            found["resourceVersion"] = version
    if step.uid == "right":
        found["uid"] = seen[-1]["metadata"].get("uid", "none")
    elif step.uid:
        found["uid"] = "wrong"
    return found


def _in_namespace(body: Any, namespace: str) -> Any:
    if isinstance(body, dict):
        return {key: _in_namespace(field, namespace) for key, field in body.items()}
    return namespace if body == "{ns}" else body


def normal_answer(answer: ApiResponse, api: Api) -> Json:
    """Without what differs between any two servers, and without sentences."""
    body = answer.body
    if body.get("kind") == "Status" and body.get("status") == "Failure":
        details = body.get("details") or {}
        found = details.get("causes", ())
        causes = {(cause.get("reason"), cause.get("field")) for cause in found}
        causes.discard(("FieldValueInvalid", "<nil>"))  # "some validation rules were not checked"
        body = {
            "reason": body.get("reason"),
            "name": details.get("name"),
            "group": details.get("group"),
            "kind": details.get("kind"),
            "causes": sorted(map(str, causes)),
        }
    return {"code": answer.code, "body": normalised(body, api)}
