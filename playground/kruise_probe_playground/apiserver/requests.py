"""Paths and queries of requests.

Source: apiserver pkg/endpoints/request/requestinfo.go; metav1.ListOptions.
Differs: only the options of this server.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote

from kruise_probe.api.keys import NamespacedName
from kruise_probe_playground.apiserver.failures import bad_request


class ResourcePath(NamedTuple):
    """The parts of `/apis/<group>/<version>/namespaces/<namespace>/<plural>/<name>/<subresource>`."""

    group: str
    version: str
    namespace: str
    plural: str
    name: str
    subresource: str

    @property
    def key(self) -> NamespacedName:
        return NamespacedName(self.namespace, self.name)

    @property
    def resource(self) -> str:
        """`pods/status`, as in roles."""
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural


def parse_path(raw_path: str) -> ResourcePath | None:
    """Parse the path of a resource; None for other paths."""
    parts = [unquote(part) for part in raw_path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] != "status":
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        return None
    plural, name, subresource = [*rest, "", ""][:3]
    return ResourcePath(group, version, namespace, plural, name, subresource)


class ListQuery(NamedTuple):
    """metav1.ListOptions. `revision` is None without a resourceVersion."""

    revision: int | None
    match: str
    continue_token: str
    label_selector: str
    field_selector: str
    bookmarks: bool
    send_initial_events: bool | None
    timeout_seconds: float | None


def parse_list_query(query: Mapping[str, str]) -> ListQuery:
    initial = query.get("sendInitialEvents")
    timeout = number(query, "timeoutSeconds")
    return ListQuery(
        revision=parse_revision(query.get("resourceVersion", "")),
        match=query.get("resourceVersionMatch", ""),
        continue_token=query.get("continue", ""),
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        bookmarks=is_true(query.get("allowWatchBookmarks")),
        send_initial_events=None if initial is None else is_true(initial),
        timeout_seconds=None if timeout is None else float(timeout),
    )


def parse_revision(text: str) -> int | None:
    """Parse a resource version; None if it is empty."""
    if text and not re.fullmatch("[0-9]{1,19}", text):
        raise bad_request(f'resourceVersion: Invalid value: "{text[:64]}": must be a number')
    return int(text) if text else None


def is_true(text: str | None) -> bool:
    """Parse a boolean of a query as Go does; a name without a value is true."""
    return text is not None and text.lower() not in ("false", "0")


def number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if text and not re.fullmatch("-?[0-9]{1,18}", text):
        raise bad_request(f'{name}: Invalid value: "{text[:64]}": must be a number')
    return int(text) if text else None
