"""Sends random histories to a server, and compares what remains of answers without identity, times and versions."""

from dataclasses import dataclass, field
from typing import Any

from contract.contract_api import Api, ApiResponse
from contract.contract_rows import normalised
from contract.history_steps import CLUSTER_SCOPED, HistoryStep
from support.wire import Json


@dataclass
class HistoryClient:
    """Sends steps to one server and remembers what it has seen of each object.

    Attributes:
        since: the resource version at the beginning of the history.
    """

    api: Api
    since: str
    seen: dict[str, list[Json]] = field(default_factory=dict)
    requests: int = 0

    def name_of(self, step: HistoryStep) -> str:
        prefixed = step.kind in CLUSTER_SCOPED and step.name
        return f"{self.api.namespace}-{step.name}" if prefixed else step.name

    def path(self, step: HistoryStep, *, named: bool = True) -> str:
        path = self.api.path(step.kind, self.name_of(step) if named else "")
        return f"{path}/{step.subresource}" if step.subresource else path

    async def send(self, step: HistoryStep) -> Any:
        """The answer, normalised."""
        query = dict(step.query)
        if step.kind in CLUSTER_SCOPED and step.verb == "list":
            query["labelSelector"] = ",".join(
                filter(None, [f"contract={self.api.unique}", query.get("labelSelector")])
            )
        method, named, body_of = {
            "get": ("GET", True, _as_is),
            "list": ("GET", False, _as_is),
            "create": ("POST", False, self._named),
            "update": ("PUT", True, self._updated),
            "patch": ("PATCH", True, self._preconditioned),
            "delete": ("DELETE", True, _as_is),
        }[step.verb]
        self.requests += 1
        answer = await self.api.send(
            method,
            self.path(step, named=named),
            self._filled(body_of(step)),
            content_type=step.form,
            **query,
        )
        if named or step.verb == "create":
            self._remember(step, answer.body)
        return normal_answer(answer, self.api)

    def _remember(self, step: HistoryStep, body: Json) -> None:
        if body.get("metadata", {}).get("uid"):
            self.seen.setdefault(self.path(HistoryStep("get", step.kind, step.name)), []).append(
                body
            )

    def _known(self, step: HistoryStep, which: str) -> Json:
        seen = self.seen.get(self.path(HistoryStep("get", step.kind, step.name))) or [
            {"metadata": {}}
        ]
        return seen[0] if which == "stale" else seen[-1]

    def _named(self, step: HistoryStep) -> Any:
        body = dict(step.body or {})
        body["metadata"] = {**(body.get("metadata") or {}), "name": self.name_of(step)}
        return self._owned(step, body)

    def _owned(self, step: HistoryStep, body: Json) -> Json:
        """Objects without a namespace have a label of the test, by which they are found."""
        if step.kind in CLUSTER_SCOPED:
            labels = body["metadata"].get("labels") or {}
            body["metadata"] = {
                **body["metadata"],
                "labels": {**labels, "contract": self.api.unique},
            }
        return body

    def _updated(self, step: HistoryStep) -> Any:
        known = self._known(step, "current")
        body = {
            **known,
            **{key: each for key, each in (step.body or {}).items() if each is not None},
        }
        metadata = {**known["metadata"], **((step.body or {}).get("metadata") or {})}
        metadata["name"] = self.name_of(step)
        metadata.pop("resourceVersion", None)
        if step.version:
            known_version = self._known(step, step.version)["metadata"].get("resourceVersion")
            metadata |= {"resourceVersion": known_version} if known_version else {}
        return self._owned(step, {**body, "metadata": metadata})

    def _preconditioned(self, step: HistoryStep) -> Any:
        if isinstance(step.body, list) or not (step.version or step.uid):
            return step.body
        body = dict(step.body or {})
        metadata = dict(body.get("metadata") or {})
        if step.version:
            known = self._known(step, step.version)["metadata"].get("resourceVersion")
            metadata |= {"resourceVersion": known} if known else {}
        if step.uid:
            right = self._known(step, "current")["metadata"].get("uid", "none")
            metadata["uid"] = right if step.uid == "right" else "wrong"
        return {**body, "metadata": metadata}

    def _filled(self, body: Any) -> Any:
        if isinstance(body, dict):
            return {key: self._filled(each) for key, each in body.items()}
        if isinstance(body, list):
            return [self._filled(each) for each in body]
        return self.api.namespace if body == "{ns}" else body


def _as_is(step: HistoryStep) -> Any:
    return step.body


def normal_answer(answer: ApiResponse, api: Api) -> Json:
    """Without what differs between any two servers, and without sentences."""
    return {
        "code": answer.code,
        "body": _body(answer.body, api),
    }


def _body(body: Any, api: Api) -> Any:
    if body.get("kind") == "Status" and body.get("status") == "Failure":
        details = body.get("details") or {}
        causes = {(each.get("reason"), each.get("field")) for each in details.get("causes", ())}
        causes.discard(("FieldValueInvalid", "<nil>"))  # "some validation rules were not checked"
        kept = {key: details.get(key) for key in ("name", "group", "kind")}
        return normalised(
            {"reason": body.get("reason"), **kept, "causes": sorted(map(str, causes))}, api
        )
    return normalised(body, api)
